"""Remember what depends on the shape alone: a vector of ones, made once per shape."""

import torch

ones = {}


def run(a):
    key = (a.shape[1], a.dtype, a.device)
    if key not in ones:
        ones[key] = torch.ones(a.shape[1], dtype=a.dtype, device=a.device)
    return a @ ones[key]
