"""Sines and cosines from tables made once for the longest sequence: they depend on positions, never on values."""

import torch


def prepare(params, example):
    q = example["q"]
    angles = torch.outer(torch.arange(q.shape[-2], device=q.device), params["frequency"])
    angles = torch.cat([angles, angles], dim=-1)
    return {"cosine": angles.cos().to(q.dtype), "sine": angles.sin().to(q.dtype)}


def run(q, cosine, sine):
    first, second = q.chunk(2, dim=-1)
    return q * cosine + torch.cat([-second, first], dim=-1) * sine
