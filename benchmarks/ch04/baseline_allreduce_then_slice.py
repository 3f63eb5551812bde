"""A sharded optimizer that all-reduces whole gradients and keeps its own shard: half of what arrives is thrown away."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class AllreduceThenSlice(DistributedBenchmark):
    numel = 1 << 24
    sizes = {"small": {"numel": 1 << 19}, "large": {"numel": 1 << 28}}
    in_place = ("grad",)
    shares_inputs = True

    def rank_inputs(self, rng):
        return [{"grad": rng.randn(self.ranks, self.numel // self.ranks)} for _ in range(self.ranks)]

    def work(self):
        return Work(bytes=4 * self.numel * (self.ranks - 1))

    def run(self, grad):
        dist.all_reduce(grad)
        return grad[dist.get_rank()]

    def rank_reference(self, ranks):
        total = torch.stack([rank["grad"] for rank in ranks]).sum(0)
        return list(total)
