"""A pool of workers opened for every batch, one task per row: starting threads and queueing cost more than the work."""

from concurrent.futures import ThreadPoolExecutor

import torch

from aisp_mcp.bench import Benchmark, Needs, Work


def scaled(row):
    return (row - row.mean()) / (row.std() + 1)


class WorkerPool(Benchmark):
    rows, columns = 512, 4096
    sizes = {"small": {"rows": 32, "columns": 256}}
    needs = Needs(device="cpu")

    def inputs(self, rng):
        return {"x": rng.randn(self.rows, self.columns)}

    def work(self):
        return Work(flops=6 * self.rows * self.columns, bytes=8 * self.rows * self.columns, items=self.rows)

    def run(self, x):
        with ThreadPoolExecutor(4) as pool:
            return torch.stack(list(pool.map(scaled, x)))
