"""Requests served one by one: each reads all weights for a single row. What counts is energy."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work


class EnergyBatch(Benchmark):
    goal = "energy"
    requests, width = 32, 4096
    sizes = {"small": {"requests": 16, "width": 512}}

    def params(self, rng):
        return {"weight": rng.randn(self.width, self.width) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.requests, self.width)}

    def work(self):
        elements = 2 * self.requests * self.width + self.width**2
        return Work(flops=2 * self.requests * self.width**2, bytes=4 * elements, items=self.requests)

    def run(self, x, weight):
        return torch.stack([weight @ row for row in x])
