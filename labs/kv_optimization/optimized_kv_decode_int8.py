"""Rung 2: int8 with a scale per token, widened in every call. Saves memory and loses time: the wide copy costs more."""

import math

import torch


def pack(tensor):
    scale = (tensor.float().abs().amax(dim=2, keepdim=True) / 127).to(tensor.dtype)  # rounded first: codes fit it
    return (tensor.float() / scale.float()).round().clamp(-127, 127).to(torch.int8), scale


def prepare(params, example):
    return {name: pack(tensor) for name, tensor in params.items()}


def run(q, keys, values):
    wide_keys, wide_values = (packed.to(q.dtype) * scale for packed, scale in (keys, values))
    scores = q @ wide_keys.transpose(1, 2) / math.sqrt(q.shape[2])
    return scores.softmax(dim=2) @ wide_values
