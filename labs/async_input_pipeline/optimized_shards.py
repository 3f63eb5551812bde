"""The shard mapped and gathered as bytes, then one product-sum for the whole batch."""

import os

import torch


def prepare(params, example):
    return {"factor": 1 / (255 * params["scale"]), "offset": -params["mean"] / params["scale"]}


def run(path, order, factor, offset):
    size = os.stat(path).st_size
    side = int((size // len(order) // 3) ** 0.5)
    images = torch.from_file(path, size=size, dtype=torch.uint8).view(len(order), 3, side, side)
    return images.index_select(0, order.cpu()).to(factor.device).float().mul_(factor).add_(offset)
