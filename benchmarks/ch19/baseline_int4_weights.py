"""One token times a weight matrix whose contract is int4: groups of 128 weights share a scale."""

import math

from aisp_mcp.bench import Benchmark, Tolerance, Work


class Int4Weights(Benchmark):
    width, outputs, dtype = 16384, 16384, "bfloat16"
    sizes = {"small": {"width": 2048, "outputs": 2048, "dtype": "float32"}, "large": {"width": 32768}}
    tolerance = Tolerance.int4_weight

    def params(self, rng):
        return {"weight": rng.randn(self.outputs, self.width, dtype=self.dtype) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(1, self.width, dtype=self.dtype)}

    def work(self):
        """Weights count half a byte each: the least that the contract's accuracy needs."""
        weights = self.width * self.outputs
        return Work(2 * weights, weights // 2 + 4 * (self.width + self.outputs), 1, "tokens")

    def run(self, x, weight):
        return x @ weight.t()
