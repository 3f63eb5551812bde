"""Chains with their own weights, one after another in the default stream: each is too small for the device."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work


class StreamConcurrency(Benchmark):
    chains, rows, width, steps, dtype = 8, 256, 512, 20, "bfloat16"
    sizes = {
        "small": {"rows": 8, "width": 96, "dtype": "float32"},
        "large": {"chains": 16, "rows": 512, "width": 1024},
    }

    def params(self, rng):
        weights = rng.randn(self.chains, self.width, self.width, dtype=self.dtype)
        return {"weights": weights / math.sqrt(self.width)}

    def inputs(self, rng):
        scales = rng.rand(self.steps, dtype=self.dtype)
        return {"x": rng.randn(self.chains, self.rows, self.width, dtype=self.dtype), "scales": scales}

    def work(self):
        products = self.chains * self.steps * self.rows * self.width
        elements = self.chains * self.width**2 + 2 * self.chains * self.rows * self.width + self.steps
        return Work(
            flops=2 * products * self.width, bytes=elements * getattr(torch, self.dtype).itemsize, items=self.chains
        )

    def run(self, x, scales, weights):
        """One chain: multiply by its own weight and by the step's scale, as often as there are scales."""
        ends = []
        for state, weight in zip(x, weights, strict=True):
            for scale in scales:
                state = torch.tanh(state @ weight) * scale
            ends.append(state)
        return torch.stack(ends)
