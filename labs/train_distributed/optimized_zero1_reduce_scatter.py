"""ZeRO stage 2: a reduce-scatter brings each rank the gradients of its own shard only."""

import torch
import torch.distributed as dist

RATE, BETA1, BETA2, EPS = 1e-2, 0.9, 0.99, 1e-6


def run(grads, weights, first, second):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    shard = weights.chunk(ranks)[rank]
    own = torch.empty_like(shard)
    dist.reduce_scatter_tensor(own, grads)
    own /= ranks
    first = torch.lerp(first.chunk(ranks)[rank], own, 1 - BETA1)
    second = torch.lerp(second.chunk(ranks)[rank], own * own, 1 - BETA2)
    shard = torch.addcdiv(shard, first, second.sqrt().add_(EPS), value=-RATE)
    whole = torch.empty_like(weights)
    dist.all_gather_into_tensor(whole, shard)
    return {"weights": whole, "first": first, "second": second}
