"""Layers on the meta device, which have shapes and no values: stored weights take their place, nothing is drawn."""

import torch
from torch.nn import functional


def run(x, weights):
    for weight in weights:
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
        layer.load_state_dict({"weight": weight}, assign=True)
        with torch.no_grad():
            x = functional.relu(layer(x))
    return x
