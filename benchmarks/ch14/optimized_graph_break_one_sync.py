"""The branch stays, but all lengths are read at once: one wait instead of one per row."""

import math


def run(gradients):
    limit = math.sqrt(gradients.shape[1])
    clipped = gradients.clone()
    for row, length in zip(clipped, gradients.norm(dim=1).tolist(), strict=True):
        if length > limit:
            row.mul_(limit / length)
    return clipped
