"""A linear layer in float32 whose contract is int8 weights: one scale per output, errors no larger than those make."""

import math

from aisp_mcp.bench import Benchmark, Tolerance, Work


class Int8Weights(Benchmark):
    rows, width, outputs, dtype = 16, 8192, 8192, "bfloat16"
    sizes = {
        "small": {"rows": 4, "width": 2048, "outputs": 2048, "dtype": "float32"},
        "large": {"width": 16384, "outputs": 16384},
    }
    tolerance = Tolerance.int8_weight

    def params(self, rng):
        return {"weight": rng.randn(self.outputs, self.width, dtype=self.dtype) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.width, dtype=self.dtype)}

    def work(self):
        """Weights count one byte each: the least that the contract's accuracy needs."""
        weights = self.width * self.outputs
        return Work(2 * self.rows * weights, weights + 4 * self.rows * (self.width + self.outputs), self.rows, "tokens")

    def run(self, x, weight):
        return x @ weight.t()
