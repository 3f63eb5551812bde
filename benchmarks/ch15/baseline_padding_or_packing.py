"""A feed-forward layer over a padded batch: prompts of different lengths in one rectangle, masked at the end."""

import math

import torch
from torch.nn import functional

from aisp_mcp.bench import Benchmark, Work


class PaddingOrPacking(Benchmark):
    requests, tokens, width, dtype = 64, 32768, 1024, "bfloat16"
    sizes = {
        "small": {"requests": 16, "tokens": 1024, "width": 96, "dtype": "float32"},
        "large": {"tokens": 65536, "width": 2048},
    }

    def params(self, rng):
        up = rng.randn(self.width, 4 * self.width, dtype=self.dtype) / math.sqrt(self.width)
        return {"up": up, "down": rng.randn(4 * self.width, self.width, dtype=self.dtype) / math.sqrt(4 * self.width)}

    def inputs(self, rng):
        """Tokens one request after the other, cut at random places."""
        cuts = rng.permutation(self.tokens - 1)[: self.requests - 1].sort().values + 1
        ends = torch.cat([cuts, cuts.new_tensor([self.tokens])])
        lengths = ends.diff(prepend=ends.new_zeros(1))
        return {"x": rng.randn(self.tokens, self.width, dtype=self.dtype), "lengths": lengths}

    def work(self):
        elements = 8 * self.width**2 + 2 * self.tokens * self.width
        return Work(
            flops=16 * self.tokens * self.width**2,
            bytes=elements * getattr(torch, self.dtype).itemsize + 8 * self.requests,
            items=self.tokens,
        )

    def run(self, x, lengths, up, down):
        padded = torch.nn.utils.rnn.pad_sequence(x.split(lengths.tolist()), batch_first=True)
        states = functional.gelu(padded @ up) @ down
        valid = torch.arange(padded.shape[1], device=x.device) < lengths[:, None]
        return states[valid]

    def reference(self, x, lengths, up, down):
        """Tokens as they lie, some at a time: in float64 the padded batch is gigabytes at the default size."""
        return torch.cat([functional.gelu(part @ up) @ down for part in x.split(8192)])
