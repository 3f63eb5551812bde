"""Half precision on the way, scaled by the largest element of all ranks: half the bytes, and one small collective."""

import torch
import torch.distributed as dist


def run(grad):
    top = grad.abs().max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    top += top == 0
    short = (grad / top).to(torch.float16)
    dist.all_reduce(short)
    return short.float().mul_(top)
