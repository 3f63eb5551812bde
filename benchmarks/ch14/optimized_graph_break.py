"""The branch as arithmetic: a factor of at most one for every row. The host reads nothing, so the graph stays whole."""

import math


def run(gradients):
    limit = math.sqrt(gradients.shape[1])
    lengths = gradients.norm(dim=1, keepdim=True)
    return gradients * (limit / lengths).clamp_(max=1)
