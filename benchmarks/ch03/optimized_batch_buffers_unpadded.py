"""No padding and no buffer: batches are copied as they lie, and columns that hold nothing leave the product."""

import torch


def run(batches, factor):
    width = batches.shape[2]
    sums = [batch.to(factor.device).to(factor.dtype) @ factor[:width] for batch in batches]
    return torch.stack(sums)
