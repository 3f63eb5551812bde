"""A formula applied chunk by chunk in a Python loop, 320 launches of little work: the device waits between them."""

import torch

from aisp_mcp.bench import Benchmark, Work


class EnergyWakeUps(Benchmark):
    goal = "energy"
    length, chunks = 1 << 25, 64
    sizes = {"small": {"length": 1 << 17, "chunks": 32}}

    def inputs(self, rng):
        return {"x": rng.rand(self.chunks, self.length // self.chunks)}

    def work(self):
        return Work(flops=5 * self.length, bytes=8 * self.length, items=self.length)

    def run(self, x):
        out = torch.empty_like(x)
        for row, place in zip(x, out, strict=True):
            torch.mul((0.25 * row - 0.5) * row + 0.75, row, out=place)
        return out
