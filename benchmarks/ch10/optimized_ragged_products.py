"""Groups padded to the longest and multiplied as one batch: a dozen launches, and products with rows of zeros."""

import torch


def run(x, ends, weights):
    lengths = ends.diff(prepend=ends.new_zeros(1))
    group = torch.repeat_interleave(lengths, output_size=len(x))
    longest = int(lengths.max())  # the one wait
    slots = torch.arange(len(x), device=x.device) - (ends - lengths)[group] + group * longest
    padded = x.new_zeros(len(ends) * longest, x.shape[1]).index_copy_(0, slots, x)
    return torch.bmm(padded.view(len(ends), longest, -1), weights).flatten(0, 1).index_select(0, slots)
