"""The library's int4 product, which unpacks in registers: groups of 128 with a scale and a zero point each."""

import torch

GROUP, MOST, TILES = 128, 7, 8


def prepare(params, example):
    weight = params["weight"].float()
    groups = weight.view(len(weight), -1, GROUP)
    scale = groups.abs().amax(dim=-1) / MOST
    codes = ((groups / scale[..., None]).round() + 8).clamp_(0, 15).int().view(len(weight), -1)
    parts = torch.stack((scale, torch.zeros_like(scale)), dim=-1).transpose(0, 1).contiguous()
    if weight.device.type == "cpu":
        return {"packed": torch._convert_weight_to_int4pack_for_cpu(codes, TILES), "parts": parts.bfloat16()}
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    return {"packed": torch._convert_weight_to_int4pack(pairs, TILES), "parts": parts.bfloat16()}


def run(x, packed, parts):
    product = torch._weight_int4pack_mm_for_cpu if x.device.type == "cpu" else torch._weight_int4pack_mm
    return product(x.bfloat16(), packed, GROUP, parts).to(x.dtype)
