"""Decode against a long shared prompt whose keys and values are kept as the model computed them."""

import math

import torch

from aisp_mcp.bench import Benchmark, Tolerance, Work


class KvDecode(Benchmark):
    requests, heads, tokens, width, dtype = 16, 8, 32768, 128, "bfloat16"
    sizes = {
        "small": {"requests": 4, "heads": 8, "tokens": 4096, "width": 64, "dtype": "float32"},
        "large": {"tokens": 262144},
    }
    # Twice the preset's 1.5: on a GPU bfloat16 rounds scores, too. A cache in int4 has 5 to 18 times the error of int8.
    tolerance = Tolerance(error_ratio=3.0, absolute=1e-15, format="int8_weight", quantised=("q", "keys", "values"))

    def params(self, rng):
        shape = (self.heads, self.tokens, self.width)
        return {name: rng.randn(*shape, dtype=self.dtype) for name in ("keys", "values")}

    def inputs(self, rng):
        return {"q": rng.randn(self.heads, self.requests, self.width, dtype=self.dtype)}

    def work(self):
        """Keys and values count one byte each: the least that the contract's accuracy needs."""
        cached = 2 * self.heads * self.tokens * self.width
        own = 2 * self.heads * self.requests * self.width
        return Work(
            flops=2 * self.requests * cached,
            bytes=cached + own * getattr(torch, self.dtype).itemsize,
            items=self.requests,
        )

    def run(self, q, keys, values):
        scores = q @ keys.transpose(1, 2) / math.sqrt(q.shape[2])
        return scores.softmax(dim=2) @ values
