"""AdamW with torch._foreach: one call for all parameters at once; on a GPU a few launches instead of hundreds."""

import torch
from _common import BETAS, loss_of, network_of

from aisp_mcp.bench.training import plain_step, train


def prepare(params, example):
    return {"network": network_of(example)}


def grouped(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=BETAS, foreach=True)


def run(network, **tensors):
    return train(network, grouped, plain_step(loss_of), tensors)
