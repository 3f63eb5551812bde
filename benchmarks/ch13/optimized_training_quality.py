"""Products in bfloat16 by autocast; weights, moments and loss in float32. Loses where bfloat16 is emulated."""

import torch
from _common import loss_of, network_of

from aisp_mcp.bench.training import train


def prepare(params, example):
    return {"network": network_of(example)}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def mixed(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(batch["x"].device.type, torch.bfloat16):
        loss = loss_of(model, **batch)
    loss.backward()
    optimizer.step()
    return loss.float()


def run(network, **tensors):
    return train(network, adamw, mixed, tensors, state=False)
