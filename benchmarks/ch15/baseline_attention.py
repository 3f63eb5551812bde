"""Causal attention that writes the whole matrix of scores to memory and reads it back for each step."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work


class Attention(Benchmark):
    batch, heads, tokens, width, dtype = 1, 32, 2048, 128, "bfloat16"
    sizes = {
        "small": {"heads": 8, "tokens": 256, "width": 64, "dtype": "float32"},
        "large": {"batch": 2, "tokens": 4096},
    }

    def inputs(self, rng):
        shape = (self.batch, self.heads, self.tokens, self.width)
        return {name: rng.randn(*shape, dtype=self.dtype) for name in ("q", "k", "v")}

    def work(self):
        pairs = self.batch * self.heads * self.tokens * (self.tokens + 1) // 2
        elements = 4 * self.batch * self.heads * self.tokens * self.width
        return Work(
            flops=4 * pairs * self.width,
            bytes=elements * getattr(torch, self.dtype).itemsize,
            items=self.batch * self.tokens,
        )

    def run(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        tokens = q.shape[-2]
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(future, -math.inf).softmax(dim=-1) @ v
