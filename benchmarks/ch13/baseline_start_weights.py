"""Layers constructed as usual and then filled with stored weights: random numbers are drawn to be overwritten."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work


class StartWeights(Benchmark):
    goal = "cold"
    rows, width, layers = 256, 2048, 8
    sizes = {"small": {"rows": 16, "width": 1024, "layers": 6}, "large": {"width": 8192}}

    def params(self, rng):
        return {"weights": rng.randn(self.layers, self.width, self.width) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.width)}

    def work(self):
        return Work(flops=2 * self.layers * self.rows * self.width**2, bytes=4 * self.layers * self.width**2)

    def run(self, x, weights):
        for weight in weights:
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            with torch.no_grad():
                layer.weight.copy_(weight)
                layer = layer.to(x.device)
                x = functional.relu(layer(x))
        return x

    def reference(self, x, weights):
        for weight in weights:
            x = functional.relu(functional.linear(x, weight))
        return x
