"""One bucket: the tensors are contiguous in memory, and one collective reduces all of them."""

import torch.distributed as dist


def run(grads):
    dist.all_reduce(grads)
    grads /= dist.get_world_size()
    return grads
