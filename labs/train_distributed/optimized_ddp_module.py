"""torch's DistributedDataParallel: hooks all-reduce buckets while backward goes on."""

import torch
from torch.nn.functional import cross_entropy, layer_norm
from torch.nn.parallel import DistributedDataParallel

RATE = 0.1


class Block(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.ParameterDict({name: torch.nn.Parameter(one.clone()) for name, one in weights.items()})
        self.order = sorted(weights.keys() - {"head"})

    def forward(self, x, y):
        for name in self.order:
            x = x + torch.relu(layer_norm(x, x.shape[1:]) @ self.weights[name])
        return cross_entropy(layer_norm(x, x.shape[1:]) @ self.weights["head"], y)


def prepare(params, example):
    return {"model": DistributedDataParallel(Block(params), gradient_as_bucket_view=True)}


def run(x, y, model):
    model.zero_grad(set_to_none=False)
    model(x, y).backward()
    return {name: (one - RATE * one.grad).detach() for name, one in model.module.weights.items()}
