"""A polynomial by Horner's rule, one operation at a time: each pass over memory wakes the device up for little work."""

import torch

from aisp_mcp.bench import Benchmark, Work


class EnergyWakeUps(Benchmark):
    goal = "energy"
    length, chunks = 1 << 22, 64
    sizes = {"small": {"length": 1 << 17, "chunks": 32}}

    def inputs(self, rng):
        return {"x": rng.rand(self.chunks, self.length // self.chunks)}

    def work(self):
        return Work(flops=6 * self.length, bytes=8 * self.length, items=self.length)

    def run(self, x):
        return torch.stack([((0.25 * row - 0.5) * row + 0.75) * row for row in x])
