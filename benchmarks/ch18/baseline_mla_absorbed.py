"""Latent attention whose keys and values are expanded from the small latent cache for all heads at every step."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work


class MlaAbsorbed(Benchmark):
    requests, heads, tokens, rank, width, dtype = 16, 64, 4096, 512, 128, "bfloat16"
    sizes = {
        "small": {"requests": 2, "heads": 16, "tokens": 512, "rank": 64, "width": 64, "dtype": "float32"},
        "large": {"requests": 32, "tokens": 8192},
    }

    def params(self, rng):
        shape = (self.heads, self.rank, self.width)
        return {name: rng.randn(*shape, dtype=self.dtype) / math.sqrt(self.rank) for name in ("to_key", "to_value")}

    def inputs(self, rng):
        return {
            "q": rng.randn(self.requests, self.heads, 1, self.width, dtype=self.dtype),
            "latent": rng.randn(self.requests, self.tokens, self.rank, dtype=self.dtype),
        }

    def work(self):
        pairs = self.requests * self.heads * self.tokens
        elements = self.requests * (self.tokens * self.rank + 2 * self.heads * self.width)
        elements += 2 * self.heads * self.rank * self.width
        return Work(
            flops=4 * pairs * self.rank + 4 * self.requests * self.heads * self.rank * self.width,
            bytes=elements * getattr(torch, self.dtype).itemsize,
            items=self.requests,
        )

    def run(self, q, latent, to_key, to_value):
        keys, values = latent[:, None] @ to_key, latent[:, None] @ to_value
        scores = q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores.softmax(dim=-1) @ values

    def reference(self, q, latent, to_key, to_value):
        """One request after the other: in float64 keys and values of all of them are 8 GiB at the default size."""
        return torch.cat([self.run(*one, to_key, to_value) for one in zip(q.split(1), latent.split(1), strict=True)])
