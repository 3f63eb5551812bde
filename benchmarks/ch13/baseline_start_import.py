"""A heavy module at the top of the file, for a function that most runs never call: each start pays for its import."""

import sympy
import torch

from aisp_mcp.bench import Benchmark, Work


def simplified(formula):
    """A formula in its simplest form, for reports."""
    return sympy.simplify(formula)


class StartImport(Benchmark):
    goal = "cold"
    rows, cols = 256, 256

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.cols)}

    def work(self):
        return Work(flops=5 * self.rows * self.cols, bytes=8 * self.rows * self.cols, items=self.rows)

    def run(self, x):
        return torch.softmax(x, dim=1)
