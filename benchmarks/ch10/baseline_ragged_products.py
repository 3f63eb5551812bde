"""Groups of sizes that only the call knows, a product each: the loop over experts that serving code starts with."""

import torch

from aisp_mcp.bench import Benchmark, Work


class RaggedProducts(Benchmark):
    groups, longest, width, dtype = 64, 1024, 2048, "bfloat16"
    sizes = {
        "small": {"groups": 48, "longest": 12, "width": 64, "dtype": "float32"},
        "large": {"groups": 128},
    }

    def lengths(self):
        return [1 + group * 5 % self.longest for group in range(self.groups)]

    def params(self, rng):
        return {"weights": rng.randn(self.groups, self.width, self.width, dtype=self.dtype)}

    def inputs(self, rng):
        """Rows, and where each group ends: the same sizes in another order for each call."""
        lengths = torch.tensor(self.lengths(), device=rng.device)[rng.permutation(self.groups)]
        x = rng.randn(sum(self.lengths()), self.width, dtype=self.dtype)
        return {"x": x, "ends": lengths.cumsum(0)}

    def work(self):
        rows = sum(self.lengths())
        elements = self.groups * self.width**2 + 2 * rows * self.width
        return Work(flops=2 * rows * self.width**2, bytes=elements * getattr(torch, self.dtype).itemsize, items=rows)

    def run(self, x, ends, weights):
        begins = [0, *ends.tolist()]
        parts = [x[begin:end] @ weight for begin, end, weight in zip(begins, begins[1:], weights, strict=False)]
        return torch.cat(parts)
