"""Half precision on the way: half the bytes for two passes of conversion; the contract allows 1 %."""

import torch
import torch.distributed as dist


def run(grad):
    short = grad.to(torch.float16)
    dist.all_reduce(short)
    return short.float()
