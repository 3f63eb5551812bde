"""bfloat16 on the way: the range of float32, so that no gradient overflows, with eight bits of precision."""

import torch
import torch.distributed as dist


def run(grad):
    short = grad.to(torch.bfloat16)
    dist.all_reduce(short)
    return short.float()
