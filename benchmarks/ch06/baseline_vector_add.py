"""A sum in blocks that fit a cache, as loops of C are carried over to tensors: an operation, or a launch, for each."""

import torch

from aisp_mcp.bench import Benchmark, Work


class VectorAdd(Benchmark):
    elements, block = 1 << 24, 1 << 16
    sizes = {"small": {"elements": 1 << 18, "block": 4096}, "large": {"elements": 1 << 28}}

    def inputs(self, rng):
        return {"a": rng.randn(self.elements), "b": rng.randn(self.elements)}

    def work(self):
        return Work(flops=self.elements, bytes=12 * self.elements, items=self.elements)

    def run(self, a, b):
        out = torch.empty_like(a)
        for begin in range(0, len(a), self.block):
            part = slice(begin, begin + self.block)
            torch.add(a[part], b[part], out=out[part])
        return out
