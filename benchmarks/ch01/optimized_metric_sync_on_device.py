"""Only the wait is gone: the sum stays on the device, one more operation per step. A CPU has no wait, and loses."""

import torch


def run(losses):
    total = torch.zeros(1, dtype=torch.float64, device=losses.device)
    for step in losses:
        total += step.mean(dtype=torch.float64)
    return total
