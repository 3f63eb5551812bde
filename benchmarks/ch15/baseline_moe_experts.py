"""A layer of sixteen experts in which every expert computes every token, and a mask keeps one answer of sixteen."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work


class MoeExperts(Benchmark):
    tokens, width, hidden, experts, dtype = 32768, 2048, 4096, 16, "bfloat16"
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
        return {
            "x": rng.randn(self.tokens, self.width, dtype=self.dtype),
            "expert": rng.randint(0, self.experts, self.tokens),
        }

    def work(self):
        elements = 2 * self.experts * self.width * self.hidden + 2 * self.tokens * self.width
        return Work(
            flops=4 * self.tokens * self.width * self.hidden,
            bytes=elements * getattr(torch, self.dtype).itemsize + 8 * self.tokens,
            items=self.tokens,
        )

    def run(self, x, expert, up, down):
        result = torch.zeros_like(x)
        for number in range(up.shape[0]):
            answer = functional.silu(x @ up[number]) @ down[number]
            result += answer * (expert == number)[:, None]
        return result
