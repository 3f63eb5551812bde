"""Gradients averaged one tensor at a time after backward: each small tensor pays the latency of a collective."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class AllreduceBuckets(DistributedBenchmark):
    tensors, numel = 64, 65536
    sizes = {"small": {"tensors": 16, "numel": 4096}, "large": {"numel": 1048576}}
    in_place = ("grads",)
    shares_inputs = True

    def rank_inputs(self, rng):
        return [{"grads": rng.randn(self.tensors, self.numel)} for _ in range(self.ranks)]

    def work(self):
        return Work(bytes=4 * self.tensors * self.numel * self.ranks)

    def run(self, grads):
        for grad in grads:
            dist.all_reduce(grad)
            grad /= dist.get_world_size()
        return grads

    def rank_reference(self, ranks):
        return [torch.stack([rank["grads"] for rank in ranks]).mean(0)] * len(ranks)
