"""No padding and no buffer: batches are copied as they are, and empty columns are left out of the product."""

import torch


def run(batches, factor):
    width = batches.shape[2]
    sums = [batch.to(factor.device).to(factor.dtype) @ factor[:width] for batch in batches]
    return torch.stack(sums)
