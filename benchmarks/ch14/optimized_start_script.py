"""The same function left to the interpreter: its operations take longer per call than a start has calls."""

import torch


def run(x):
    for _ in range(4):
        left, right = torch.roll(x, 1, 1), torch.roll(x, -1, 1)
        x = torch.where(x > 0, 0.5 * x + 0.25 * (left + right), 0.9 * x)
    return x
