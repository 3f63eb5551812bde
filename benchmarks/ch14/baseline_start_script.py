"""A function scripted when its file is loaded: parser, type inference and profiling run before the one call."""

import warnings

import torch
from torch import Tensor

from aisp_mcp.bench import Benchmark, Work


def relax(x: Tensor, steps: int) -> Tensor:
    """Steps of relaxation along the rows."""
    for _ in range(steps):
        left, right = torch.roll(x, 1, 1), torch.roll(x, -1, 1)
        x = torch.where(x > 0, 0.5 * x + 0.25 * (left + right), 0.9 * x)
    return x


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # since torch 2.9, and in use all the same
    smooth = torch.jit.script(relax)


class StartScript(Benchmark):
    goal = "cold"
    rows, cols, steps = 512, 512, 4
    sizes = {"small": {"rows": 64, "cols": 64}}

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.cols)}

    def work(self):
        return Work(flops=28 * self.rows * self.cols, bytes=8 * self.rows * self.cols, items=self.rows)

    def run(self, x):
        return smooth(x, self.steps)

    def reference(self, x):
        return relax(x, self.steps)
