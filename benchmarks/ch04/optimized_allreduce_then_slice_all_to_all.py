"""All-to-all of the shards and a local sum: the bytes of a reduce-scatter, the additions in one pass at the end."""

import torch
import torch.distributed as dist


def run(grad):
    parts = torch.empty_like(grad)
    dist.all_to_all_single(parts, grad)
    return parts.sum(0)
