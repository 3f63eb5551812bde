"""Eight experts, two per token, in which all experts compute all tokens: zero gates drop six answers of eight."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work


class MoeLayer(Benchmark):
    tokens, width, hidden, experts, dtype = 32768, 2048, 4096, 8, "bfloat16"
    sizes = {
        "small": {"tokens": 256, "width": 96, "hidden": 192, "dtype": "float32"},
        "large": {"tokens": 65536},
    }

    def params(self, rng):
        up, down = (self.experts, self.width, self.hidden), (self.experts, self.hidden, self.width)
        return {
            "up": rng.randn(*up, dtype=self.dtype) / math.sqrt(self.width),
            "down": rng.randn(*down, dtype=self.dtype) / math.sqrt(self.hidden),
        }

    def inputs(self, rng):
        """Tokens, the two experts of each, which are never the same, and the gates of both."""
        first = rng.randint(0, self.experts, self.tokens)
        second = (first + rng.randint(1, self.experts, self.tokens)) % self.experts
        return {
            "x": rng.randn(self.tokens, self.width, dtype=self.dtype),
            "experts": torch.stack([first, second], dim=1),
            "gates": rng.rand(self.tokens, 2, dtype=self.dtype),
        }

    def work(self):
        elements = 2 * self.experts * self.width * self.hidden + 2 * self.tokens * (self.width + 1)
        return Work(
            flops=8 * self.tokens * self.width * self.hidden,
            bytes=elements * getattr(torch, self.dtype).itemsize + 16 * self.tokens,
            items=self.tokens,
        )

    def run(self, x, experts, gates, up, down):
        weights = gates.new_zeros(len(x), len(up)).scatter_(1, experts, gates)
        result = torch.zeros_like(x)
        for number in range(len(up)):
            answer = functional.silu(x @ up[number]) @ down[number]
            result += answer * weights[:, number, None]
        return result
