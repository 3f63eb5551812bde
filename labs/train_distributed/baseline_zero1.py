"""Adam on every rank for every parameter: all ranks hold all states, and repeat each other's update."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work

RATE, BETA1, BETA2, EPS = 1e-2, 0.9, 0.99, 1e-6


class Zero1(DistributedBenchmark):
    numel = 1 << 24
    sizes = {"small": {"numel": 1 << 19}, "large": {"numel": 1 << 28}}

    def rank_inputs(self, rng):
        weights, first = rng.randn(self.numel), rng.randn(self.numel)
        second = rng.rand(self.numel).abs() + 0.1
        state = {"weights": weights, "first": first, "second": second}
        return [{"grads": rng.randn(self.numel), **state} for _ in range(self.ranks)]

    def work(self):
        return Work(flops=12 * self.numel, bytes=4 * 4 * self.numel * self.ranks)

    def run(self, grads, weights, first, second):
        mean = grads.clone()
        dist.all_reduce(mean)
        return own(adam(mean / dist.get_world_size(), weights, first, second), dist.get_rank(), dist.get_world_size())

    def rank_reference(self, ranks):
        mean = torch.stack([rank["grads"] for rank in ranks]).mean(0)
        found = adam(mean, *(ranks[0][name] for name in ("weights", "first", "second")))
        return [own(found, rank, len(ranks)) for rank in range(len(ranks))]


def adam(grads, weights, first, second):
    """(new weights, first and second moments) of one step."""
    first = BETA1 * first + (1 - BETA1) * grads
    second = BETA2 * second + (1 - BETA2) * grads * grads
    return weights - RATE * first / (second.sqrt() + EPS), first, second


def own(found, rank, ranks):
    """All weights, and the moments of that rank's shard: the only ones that anybody must keep."""
    weights, first, second = found
    return {"weights": weights, "first": first.chunk(ranks)[rank], "second": second.chunk(ranks)[rank]}
