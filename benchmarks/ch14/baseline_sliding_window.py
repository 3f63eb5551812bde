"""Attention to the last few tokens by a full mask: fifteen of sixteen scores are computed, and thrown away."""

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work

SHARE = 16  # a token sees the sixteenth of the sequence that ends with itself


class SlidingWindow(Benchmark):
    heads, tokens, width, dtype = 16, 8192, 64, "bfloat16"
    sizes = {"small": {"heads": 4, "tokens": 1024, "dtype": "float32"}, "large": {"heads": 32, "tokens": 16384}}

    def inputs(self, rng):
        shape = (self.heads, self.tokens, self.width)
        return {name: rng.randn(*shape, dtype=self.dtype) for name in ("q", "k", "v")}

    def work(self):
        window = self.tokens // SHARE
        pairs = self.heads * (self.tokens * window - window * (window - 1) // 2)
        elements = 4 * self.heads * self.tokens * self.width
        return Work(
            flops=4 * pairs * self.width, bytes=elements * getattr(torch, self.dtype).itemsize, items=self.tokens
        )

    def run(self, q, k, v):
        place = torch.arange(q.shape[1], device=q.device)
        distance = place[:, None] - place
        seen = (distance >= 0) & (distance < q.shape[1] // SHARE)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).contiguous()

    def reference(self, q, k, v):
        """One head after the other: in float64 the scores of all of them are 8 GiB at the default size."""
        return torch.cat([self.run(*one) for one in zip(q.split(1), k.split(1), v.split(1), strict=True)])
