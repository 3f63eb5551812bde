"""A training step in float32 throughout, as is a model's default."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Tolerance, Work


class Autocast(Benchmark):
    rows, width, layers = 2048, 4096, 4
    sizes = {"small": {"rows": 256, "width": 512, "layers": 3}, "large": {"rows": 16384, "width": 8192}}
    # bfloat16 keeps 8 bits: four layers forward and back leave about 1 %. Gradients below 1e-30 underflow in it.
    tolerance = Tolerance(approximate=0.05, absolute=1e-30)

    def params(self, rng):
        return {"weights": rng.randn(self.layers, self.width, self.width) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.width)}

    def work(self):
        elements = 2 * self.layers * self.width**2 + self.rows * self.width
        return Work(flops=6 * self.layers * self.rows * self.width**2, bytes=4 * elements, items=self.rows)

    def run(self, x, weights):
        """Gradients of the mean square of the outputs by all weights."""
        weights = weights.detach().requires_grad_()
        for weight in weights:
            x = functional.gelu(x @ weight)
        (gradients,) = torch.autograd.grad(x.square().mean(), weights)
        return gradients
