"""Weights in int8, widened to a whole matrix in the call: fewer bytes at rest, and more of them moved than before."""

import torch


def prepare(params, example):
    weight = params["weight"].float()
    scale = weight.abs().amax(dim=1) / 127
    return {"packed": (weight / scale[:, None]).round().to(torch.int8), "scale": scale.to(params["weight"].dtype)}


def run(x, packed, scale):
    return (x @ packed.to(x.dtype).t()) * scale
