"""No padding: one product over the tokens as they are, then sums by segment, in float32: the rows are long."""

import torch


def run(x, lengths, weight):
    states = torch.relu(x @ weight)
    owner = torch.repeat_interleave(lengths, output_size=x.shape[0])
    sums = torch.zeros(lengths.shape[0], weight.shape[1], device=x.device)
    return sums.index_add_(0, owner, states.float()).to(x.dtype)
