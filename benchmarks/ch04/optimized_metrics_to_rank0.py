"""One all-reduce of all metrics: every rank ends with the mean, and the collective is the only point of meeting."""

import torch.distributed as dist


def run(values):
    total = values.clone()
    dist.all_reduce(total)
    return total.div_(dist.get_world_size())
