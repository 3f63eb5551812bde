"""ZeRO stage 1: all-reduce as before, Adam for each rank's own shard only, then all ranks gather the new weights."""

import torch
import torch.distributed as dist

RATE, BETA1, BETA2, EPS = 1e-2, 0.9, 0.99, 1e-6


def run(grads, weights, first, second):
    mean = grads.clone()
    dist.all_reduce(mean)
    return step(mean.chunk(dist.get_world_size())[dist.get_rank()], weights, first, second)


def step(grads, weights, first, second):
    """Adam on the shard whose summed gradients these are."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    grads, shard = grads / ranks, weights.chunk(ranks)[rank]
    first = torch.lerp(first.chunk(ranks)[rank], grads, 1 - BETA1)
    second = torch.lerp(second.chunk(ranks)[rank], grads * grads, 1 - BETA2)
    shard = torch.addcdiv(shard, first, second.sqrt().add_(EPS), value=-RATE)
    whole = torch.empty_like(weights)
    dist.all_gather_into_tensor(whole, shard)
    return {"weights": whole, "first": first, "second": second}
