"""One reduction over all steps at the end: no wait, and one operation for 400, two changes that `on_device` parts."""

import torch


def run(losses):
    return losses.mean(dim=1, dtype=torch.float64).sum(dim=0, keepdim=True)
