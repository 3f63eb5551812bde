"""Each product written where it belongs: no concatenation, still a wait for the sizes and a launch per group."""

import torch


def run(x, ends, weights):
    bounds, out = [0, *ends.tolist()], torch.empty_like(x)
    for begin, end, weight in zip(bounds, bounds[1:], weights, strict=False):
        torch.mm(x[begin:end], weight, out=out[begin:end])
    return out
