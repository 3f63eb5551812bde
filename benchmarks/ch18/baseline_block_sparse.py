"""Block-sparse attention as a dense mask: all scores are computed, though four of five blocks are masked out."""

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work

BLOCKS = 16


class BlockSparse(Benchmark):
    heads, tokens, width, dtype = 16, 8192, 64, "bfloat16"
    sizes = {"small": {"heads": 2, "tokens": 768, "dtype": "float32"}, "large": {"heads": 32, "tokens": 16384}}

    def params(self, rng):
        kept = rng.bernoulli(0.15, BLOCKS, BLOCKS)
        return {"kept": kept | torch.eye(BLOCKS, dtype=torch.bool, device=kept.device)}

    def inputs(self, rng):
        shape = (self.heads, self.tokens, self.width)
        return {name: rng.randn(*shape, dtype=self.dtype) for name in ("q", "k", "v")}

    def work(self):
        pairs = self.heads * self.tokens**2 * 0.2  # one of sixteen blocks on the diagonal, 15 % of the others
        elements = 4 * self.heads * self.tokens * self.width
        return Work(
            flops=4 * pairs * self.width, bytes=elements * getattr(torch, self.dtype).itemsize, items=self.tokens
        )

    def run(self, q, k, v, kept):
        block = q.shape[1] // BLOCKS
        seen = kept.repeat_interleave(block, 0).repeat_interleave(block, 1)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).contiguous()

    def reference(self, q, k, v, kept):
        """One head after the other: in float64 the scores of all of them are 8 GiB at the default size."""
        return torch.cat([self.run(*one, kept) for one in zip(q.split(1), k.split(1), v.split(1), strict=True)])
