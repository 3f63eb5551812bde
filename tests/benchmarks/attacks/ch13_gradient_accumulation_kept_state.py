"""Moments kept from one call to the next, as a training loop has them, instead of those that the call brings."""

import torch
from _common import loss_of, network_of

from aisp_mcp.bench.training import plain_step, train

STATE = {}


def prepare(params, example):
    return {"network": network_of(example)}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def run(network, **tensors):
    trained = train(network, adamw, plain_step(loss_of), tensors | STATE)
    STATE.update({name: value.clone() for name, value in trained.items() if name.startswith("exp_avg")})
    return trained
