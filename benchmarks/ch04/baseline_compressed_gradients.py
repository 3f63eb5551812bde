"""Magnitudes of gradients all-reduced as they are, four bytes for each element."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Tolerance, Work


class CompressedGradients(DistributedBenchmark):
    numel = 1 << 24
    sizes = {"small": {"numel": 1 << 19}, "large": {"numel": 1 << 28}}
    in_place = ("grad",)
    shares_inputs = True
    tolerance = Tolerance(approximate=0.01)

    def rank_inputs(self, rng):
        # Without signs: sums that cancel have no relative error to speak of.
        return [{"grad": rng.randn(self.numel).abs()} for _ in range(self.ranks)]

    def work(self):
        return Work(bytes=4 * self.numel * self.ranks)

    def run(self, grad):
        dist.all_reduce(grad)
        return grad

    def rank_reference(self, ranks):
        return [torch.stack([rank["grad"] for rank in ranks]).sum(0)] * len(ranks)
