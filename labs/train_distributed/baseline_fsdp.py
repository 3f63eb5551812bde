"""Sharded weights, all gathered before the step; whole gradients all-reduced after it, and cut to own rows."""

import torch.distributed as dist
from _common import expected_gradients, summed_gradients

from aisp_mcp.bench import DistributedBenchmark, Tolerance, Work

RATE = 0.1


class Fsdp(DistributedBenchmark):
    rows, width, layers = 8192, 2048, 8
    sizes = {"small": {"rows": 128, "width": 256}, "large": {"width": 8192}}
    tolerance = Tolerance(error_ratio=64.0)

    def rank_inputs(self, rng):
        shards = rng.randn(self.layers, self.width, self.width, scale=0.1).chunk(self.ranks, 1)
        return [
            {
                "x": rng.randn(self.rows, self.width),
                "y": rng.randn(self.rows, self.width),
                "weights": shard.contiguous(),
            }
            for shard in shards
        ]

    def work(self):
        flops = 6 * self.rows * self.layers * self.width**2
        return Work(flops=self.ranks * flops, bytes=self.ranks * 8 * self.layers * self.width**2, items=self.rows)

    def run(self, x, y, weights):
        return weights - RATE / dist.get_world_size() * summed_gradients(x, y, weights)

    def rank_reference(self, ranks):
        grads = expected_gradients(ranks)
        return [one["weights"] - RATE / len(ranks) * grad for one, grad in zip(ranks, grads, strict=True)]
