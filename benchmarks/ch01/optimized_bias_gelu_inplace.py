"""The same chain in two buffers: operations work in place, so fewer bytes are allocated and touched."""

import math

import torch


def run(x, bias):
    h = x + bias
    inner = h * h
    inner.mul_(0.044715).add_(1).mul_(h).mul_(math.sqrt(2 / math.pi))
    torch.tanh(inner, out=inner)
    return inner.add_(1).mul_(h).mul_(0.5)
