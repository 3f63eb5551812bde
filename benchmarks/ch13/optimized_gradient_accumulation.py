"""The whole batch at once: the mean of equal parts is the mean of all, and gradients are written once."""

import torch
from _common import loss_of, network_of

from aisp_mcp.bench.training import plain_step, train


def prepare(params, example):
    return {"network": network_of(example)}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def run(network, **tensors):
    return train(network, adamw, plain_step(loss_of), tensors)
