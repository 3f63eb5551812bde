"""Grouped-query attention over a prompt with keys and values repeated for each query head, as many models write it."""

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work


class GqaPrefill(Benchmark):
    requests, heads, kv_heads, tokens, width, dtype = 8, 32, 4, 2048, 64, "bfloat16"
    sizes = {
        "small": {"requests": 2, "heads": 8, "kv_heads": 2, "tokens": 256, "dtype": "float32"},
        "large": {"tokens": 8192},
    }

    def inputs(self, rng):
        own, shared = ((self.requests, heads, self.tokens, self.width) for heads in (self.heads, self.kv_heads))
        shapes = {"q": own, "k": shared, "v": shared}
        return {name: rng.randn(*shape, dtype=self.dtype) for name, shape in shapes.items()}

    def work(self):
        pairs = self.requests * self.heads * self.tokens * (self.tokens + 1) // 2
        elements = 2 * self.requests * self.tokens * self.width * (self.heads + self.kv_heads)
        return Work(
            flops=4 * pairs * self.width,
            bytes=elements * getattr(torch, self.dtype).itemsize,
            items=self.requests * self.tokens,
        )

    def run(self, q, k, v):
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).contiguous()

    def reference(self, q, k, v):
        """One request after the other: in float64 the scores of all of them are 8 GiB at the default size."""
        return torch.cat([self.run(*one) for one in zip(q.split(1), k.split(1), v.split(1), strict=True)])
