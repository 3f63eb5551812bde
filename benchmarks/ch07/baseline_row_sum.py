"""Sum every row of a matrix by walking its columns: one strided pass per column."""

import torch

from aisp_mcp.bench import Benchmark, Work


class RowSum(Benchmark):
    rows, cols, dtype = 262144, 64, "float32"
    sizes = {"small": {"rows": 8192}, "large": {"rows": 2097152}}

    def inputs(self, rng):
        return {"a": rng.randn(self.rows, self.cols, dtype=self.dtype)}

    def work(self):
        itemsize = getattr(torch, self.dtype).itemsize
        return Work(flops=self.rows * (self.cols - 1), bytes=itemsize * self.rows * (self.cols + 1), items=self.rows)

    def run(self, a):
        total = a[:, 0].clone()
        for column in range(1, a.shape[1]):
            total += a[:, column]
        return total
