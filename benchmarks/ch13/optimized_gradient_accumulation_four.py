"""Four micro-batches instead of sixteen: most of the gain, and a quarter of the activations."""

import torch
from _common import loss_of, network_of

from aisp_mcp.bench.training import train

PARTS = 4


def prepare(params, example):
    return {"network": network_of(example)}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def accumulated(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    total = 0
    for x, labels in zip(batch["x"].chunk(PARTS), batch["labels"].chunk(PARTS), strict=True):
        loss = loss_of(model, x, labels) / PARTS
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


def run(network, **tensors):
    return train(network, adamw, accumulated, tensors)
