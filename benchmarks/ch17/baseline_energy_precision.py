"""A product in float32, as is a model's default; what counts is energy."""

import math

from aisp_mcp.bench import Benchmark, Tolerance, Work


class EnergyPrecision(Benchmark):
    goal = "energy"
    rows, width = 2048, 4096
    sizes = {"small": {"rows": 128, "width": 512}, "large": {"rows": 4096}}
    # bfloat16 keeps 8 bits: products of rounded operands are off by about half a per cent.
    tolerance = Tolerance(approximate=0.05)

    def params(self, rng):
        return {"weight": rng.randn(self.width, self.width) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.width)}

    def work(self):
        elements = 2 * self.rows * self.width + self.width**2
        return Work(flops=2 * self.rows * self.width**2, bytes=4 * elements, items=self.rows)

    def run(self, x, weight):
        return x @ weight
