"""A linear layer whose weight is stored one row per output, as checkpoints store it, and multiplied transposed."""

import torch

from aisp_mcp.bench import Benchmark, Work


class LinearLayout(Benchmark):
    rows, features, outputs, dtype = 4096, 4096, 4096, "bfloat16"
    sizes = {
        "small": {"rows": 256, "features": 768, "outputs": 768, "dtype": "float32"},
        "large": {"rows": 8192, "features": 8192, "outputs": 8192},
    }

    def params(self, rng):
        return {"weight": rng.randn(self.outputs, self.features, dtype=self.dtype)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.features, dtype=self.dtype)}

    def work(self):
        elements = self.rows * self.features + self.outputs * self.features + self.rows * self.outputs
        return Work(
            flops=2 * self.rows * self.features * self.outputs,
            bytes=elements * getattr(torch, self.dtype).itemsize,
            items=self.rows,
        )

    def run(self, x, weight):
        return x @ weight.t()
