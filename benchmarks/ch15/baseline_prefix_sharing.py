"""Requests with one system prompt, each prefilled from its first token: the prompt is computed once per request."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work


class PrefixSharing(Benchmark):
    requests, prefix_tokens, own_tokens, heads, head_width, dtype = 32, 2048, 128, 16, 64, "bfloat16"
    sizes = {
        "small": {"requests": 8, "prefix_tokens": 384, "own_tokens": 32, "heads": 4, "head_width": 32}
        | {"dtype": "float32"},
        "large": {"prefix_tokens": 8192, "heads": 32},
    }

    def params(self, rng):
        width = self.heads * self.head_width
        return {"qkv": rng.randn(width, 3, self.heads, self.head_width, dtype=self.dtype) / math.sqrt(width)}

    def inputs(self, rng):
        width = self.heads * self.head_width
        return {
            "prefix": rng.randn(self.prefix_tokens, width, dtype=self.dtype),
            "own": rng.randn(self.requests, self.own_tokens, width, dtype=self.dtype),
        }

    def work(self):
        width = self.heads * self.head_width
        tokens, mine = self.prefix_tokens, self.own_tokens
        pairs = self.requests * (mine * tokens + mine * (mine + 1) // 2)
        products = 2 * tokens * width**2 + 3 * self.requests * mine * width**2 + 2 * pairs * width
        elements = tokens * width + 2 * self.requests * mine * width + 3 * width**2
        return Work(
            flops=2 * products, bytes=elements * getattr(torch, self.dtype).itemsize, items=self.requests * mine
        )

    def run(self, prefix, own, qkv):
        """Attention outputs of each request's own tokens: (requests, tokens, heads, width of a head)."""
        tokens = torch.cat([prefix.expand(own.shape[0], -1, -1), own], dim=1)
        q, k, v = torch.einsum("rtw,wnhd->nrhtd", tokens, qkv)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed[:, :, prefix.shape[0] :].transpose(1, 2).contiguous()

    def reference(self, prefix, own, qkv):
        """One request after the other: in float64 the scores of all of them are 18 GiB at the default size."""
        return torch.cat([self.run(prefix, one, qkv) for one in own.split(1)])
