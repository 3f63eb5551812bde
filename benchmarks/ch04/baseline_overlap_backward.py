"""Weight gradients of all layers first, then their all-reduce: links rest while ranks compute, and the reverse."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class OverlapBackward(DistributedBenchmark):
    layers, rows, width = 8, 4096, 2048
    sizes = {"small": {"layers": 4, "rows": 256, "width": 256}, "large": {"layers": 16}}

    def rank_inputs(self, rng):
        shape = (self.layers, self.rows, self.width)
        return [{"x": rng.randn(*shape), "dy": rng.randn(*shape)} for _ in range(self.ranks)]

    def work(self):
        each = self.layers * self.width
        moved = each * (2 * self.rows + self.width)
        return Work(flops=2 * self.ranks * each * self.rows * self.width, bytes=4 * self.ranks * moved)

    def run(self, x, dy):
        grads = [one.T @ other for one, other in zip(x, dy, strict=True)]
        for grad in grads:
            dist.all_reduce(grad)
        return torch.stack(grads)

    def rank_reference(self, ranks):
        return [sum(rank["x"].mT @ rank["dy"] for rank in ranks)] * len(ranks)
