"""Forty small matrix products, launched one by one and stacked."""

import torch

from aisp_mcp.bench import Benchmark, Work


class BatchedProduct(Benchmark):
    batch, m, k, n, dtype = 40, 256, 256, 256, "bfloat16"
    sizes = {"small": {"m": 32, "k": 32, "n": 32, "dtype": "float32"}, "large": {"m": 512, "k": 512, "n": 512}}

    def inputs(self, rng):
        return {
            "a": rng.randn(self.batch, self.m, self.k, dtype=self.dtype),
            "b": rng.randn(self.batch, self.k, self.n, dtype=self.dtype),
        }

    def work(self):
        itemsize = getattr(torch, self.dtype).itemsize
        elements = self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)
        return Work(flops=2 * self.batch * self.m * self.k * self.n, bytes=itemsize * elements, items=self.batch)

    def run(self, a, b):
        return torch.stack([left @ right for left, right in zip(a, b, strict=True)])
