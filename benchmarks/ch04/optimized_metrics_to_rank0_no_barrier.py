"""The same gathers and broadcasts without barriers: a collective already waits for whom it needs."""

import torch
import torch.distributed as dist


def run(values):
    first, means = dist.get_rank() == 0, []
    for value in values:
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size())] if first else None
        dist.gather(value, parts, dst=0)
        mean = torch.stack(parts).mean(0) if first else torch.empty_like(value)
        dist.broadcast(mean, src=0)
        means.append(mean)
    return torch.stack(means)
