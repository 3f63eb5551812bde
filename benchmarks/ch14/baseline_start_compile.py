"""A block compiled for the one call of a short job, with empty caches: the compiler's start is most of its time."""

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Needs, Work


def block(x, weight, bias):
    """A dense layer with activation and normalisation."""
    return functional.layer_norm(functional.gelu(x @ weight + bias), x.shape[-1:])


compiled = torch.compile(block)


class StartCompile(Benchmark):
    goal = "cold"
    rows, width = 4096, 1024
    needs = Needs(gpus=1)  # on a CPU each process would compile C++ for half a minute

    def params(self, rng):
        return {"weight": rng.randn(self.width, self.width) / 32, "bias": rng.randn(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.width)}

    def work(self):
        return Work(flops=2 * self.rows * self.width**2, bytes=4 * (2 * self.rows + self.width) * self.width)

    def run(self, x, weight, bias):
        return compiled(x, weight, bias)

    def reference(self, x, weight, bias):
        return block(x, weight, bias)
