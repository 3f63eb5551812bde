"""The library's fused AdamW: one pass over weight, gradient and both moments."""

import torch
from _common import BETAS, loss_of, network_of

from aisp_mcp.bench.training import plain_step, train


def prepare(params, example):
    return {"network": network_of(example)}


def fused(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=BETAS, fused=True)


def run(network, **tensors):
    return train(network, fused, plain_step(loss_of), tensors)
