"""The loss and its gradients through torch.compile in float32: fused norms and activations, compiled in prepare."""

import torch
from _common import loss_of, network_of

from aisp_mcp.training import plain_step, train


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def prepare(params, example):
    network, loss = network_of(example), torch.compile(loss_of, dynamic=False)
    train(network, adamw, plain_step(loss), example, state=False)
    return {"network": network, "loss": loss}


def run(network, loss, **tensors):
    return train(network, adamw, plain_step(loss), tensors, state=False)
