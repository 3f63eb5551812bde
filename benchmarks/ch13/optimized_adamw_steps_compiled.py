"""Forward and backward of each block through torch.compile, compiled once for all; the library's fused AdamW."""

import torch
from _common import BETAS, loss_of, network_of

from aisp_mcp.bench.training import plain_step, train


def fused(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=BETAS, fused=True)


def prepare(params, example):
    network = network_of(example)
    for block in network.blocks:
        block.compile()  # by itself: its code is that of the first one, and the network may have any number of them
    run(network, **example)
    return {"network": network}


def run(network, **tensors):
    return train(network, fused, plain_step(loss_of), tensors)
