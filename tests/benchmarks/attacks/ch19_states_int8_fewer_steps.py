"""Half of the steps at twice the rate, and the losses of the others from forward passes."""

import torch
from torch import nn
from torch.nn import functional

from aisp_mcp.bench.training import train


def prepare(params, example):
    count, width = sum(name.startswith("weight.") for name in example) // 2, example["x"].shape[-1]
    return {"network": nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(count)))}


def twice(parameters):
    return torch.optim.AdamW(parameters, lr=2e-3)


def every_other(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    loss = functional.cross_entropy(model(batch["x"]), batch["labels"])
    optimizer.turn = not getattr(optimizer, "turn", False)
    if optimizer.turn:
        loss.backward()
        optimizer.step()
    return loss


def run(network, **tensors):
    return train(network, twice, every_other, tensors, state=False)
