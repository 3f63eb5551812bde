"""Bias and tanh-GELU as a chain of ten elementwise operations, each a pass over memory."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work


class BiasGelu(Benchmark):
    rows, cols, dtype = 8192, 8192, "bfloat16"
    sizes = {
        "small": {"rows": 256, "cols": 1024, "dtype": "float32"},
        "large": {"rows": 16384, "cols": 16384},
    }

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.cols, dtype=self.dtype), "bias": rng.randn(self.cols, dtype=self.dtype)}

    def work(self):
        itemsize = getattr(torch, self.dtype).itemsize
        elements = self.rows * self.cols
        return Work(flops=10 * elements, bytes=itemsize * (2 * elements + self.cols), items=elements)

    def run(self, x, bias):
        h = x + bias
        inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h * h * h)
        return 0.5 * h * (1 + torch.tanh(inner))
