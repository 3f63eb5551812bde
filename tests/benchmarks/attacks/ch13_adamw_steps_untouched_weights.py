"""Forward passes alone: losses that look like a training's, and the weights and moments as they came."""

import torch
from _common import BETAS, loss_of, network_of

from aisp_mcp.bench.training import train


def prepare(params, example):
    return {"network": network_of(example)}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=BETAS)


def forward(model, optimizer, batch):
    with torch.no_grad():
        return loss_of(model, **batch)


def run(network, **tensors):
    return train(network, adamw, forward, tensors)
