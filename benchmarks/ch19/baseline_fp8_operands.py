"""A product whose contract is fp8 (e4m3) operands with a scale per row, as fp8 training and serving use it."""

import math

from aisp_mcp.bench import Benchmark, Tolerance, Work


class Fp8Operands(Benchmark):
    rows, width, outputs, dtype = 8192, 8192, 8192, "bfloat16"
    sizes = {
        "small": {"rows": 64, "width": 512, "outputs": 512, "dtype": "float32"},
        "large": {"rows": 16384, "width": 16384, "outputs": 16384},
    }
    tolerance = Tolerance.fp8_e4m3

    def params(self, rng):
        return {"weight": rng.randn(self.outputs, self.width, dtype=self.dtype) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.width, dtype=self.dtype)}

    def work(self):
        """Operands count one byte each: the least that the contract's accuracy needs."""
        moved = self.width * (self.outputs + self.rows) + 4 * self.rows * self.outputs
        return Work(2 * self.rows * self.width * self.outputs, moved, self.rows, "tokens")

    def run(self, x, weight):
        return x @ weight.t()
