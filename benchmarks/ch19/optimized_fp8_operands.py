"""Both operands rounded to e4m3 and back, then a bfloat16 product: fp8 emulated. It saves bytes at rest, no time."""

import torch

MOST = 448.0


def rounded(values):
    scale = values.abs().amax(dim=-1, keepdim=True).float().clamp_min(1e-30) / MOST
    return (values / scale).to(torch.float8_e4m3fn), scale


def prepare(params, example):
    packed, scale = rounded(params["weight"])
    return {"packed": packed, "scale": scale.flatten()}


def run(x, packed, scale):
    narrow, own = rounded(x)
    product = narrow.to(torch.bfloat16) @ packed.to(torch.bfloat16).t()
    return (product * own * scale).to(x.dtype)
