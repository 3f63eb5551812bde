"""Still forty launches, each writing its part of the result: saves the copy, not the launches."""

import torch


def run(a, b):
    result = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    for left, right, place in zip(a, b, result, strict=True):
        torch.mm(left, right, out=place)
    return result
