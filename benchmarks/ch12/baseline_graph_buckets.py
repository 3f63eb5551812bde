"""Requests of changing length run eagerly, because a captured graph has one shape: every layer is a launch again."""

import math

import torch

from aisp_mcp.bench import Benchmark, Needs, Work


class GraphBuckets(Benchmark):
    requests, longest, width, layers, dtype = 16, 64, 256, 32, "bfloat16"
    sizes = {
        "small": {"requests": 4, "width": 32, "layers": 4, "dtype": "float32"},
        "large": {"requests": 64, "width": 512},
    }
    needs = Needs(gpus=1)

    def params(self, rng):
        return {"weights": rng.randn(self.layers, self.width, self.width, dtype=self.dtype) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {
            "x": rng.randn(self.requests, self.longest, self.width, dtype=self.dtype),
            "lengths": rng.randint(1, self.longest + 1, self.requests),
        }

    def work(self):
        tokens = self.requests * self.longest // 2
        elements = self.layers * self.width**2 + self.requests * (self.longest + 1) * self.width
        return Work(
            flops=2 * tokens * self.layers * self.width**2,
            bytes=elements * getattr(torch, self.dtype).itemsize + 8 * self.requests,
            items=tokens,
        )

    def run(self, x, lengths, weights):
        """The sum of a request's tokens after the last layer. There is no bias, so rows of zeros stay zero."""
        pooled = []
        for request, length in zip(x, lengths.tolist(), strict=True):
            state = request[:length]
            for weight in weights:
                state = torch.tanh(state @ weight)
            pooled.append(state.sum(dim=0))
        return torch.stack(pooled)
