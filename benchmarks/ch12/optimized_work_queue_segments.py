"""Elements computed in memory order, and added up by the row that they belong to: no padding, and no loop over rows."""

import torch


def run(x, ends):
    lengths = ends.diff(prepend=ends.new_zeros(1))
    return torch.segment_reduce(x / (1 + x.abs()), "sum", lengths=lengths)
