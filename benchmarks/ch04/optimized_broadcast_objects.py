"""One broadcast of one tensor that holds all of them."""

import torch.distributed as dist


def run(state):
    whole = state.clone()
    dist.broadcast(whole, src=0)
    return whole
