"""A few rows of an array on disk: numpy loads all of it, then most is thrown away."""

import io

import numpy as np
import torch

from aisp_mcp.bench import Benchmark, File, Work


class ArrayRows(Benchmark):
    rows, columns, batch = 1 << 15, 512, 64
    sizes = {"small": {"rows": 2048, "columns": 256, "batch": 32}}

    def inputs(self, rng):
        """An array in numpy's format, the rows that are wanted, and a factor for each column."""
        written = io.BytesIO()
        wanted = rng.randint(0, self.rows, self.batch)
        np.save(written, rng.randn(self.rows, self.columns).cpu().numpy())
        return {"path": File(written.getvalue(), "array.npy"), "wanted": wanted, "factor": rng.rand(self.columns)}

    def work(self):
        values = self.batch * self.columns
        return Work(flops=values, bytes=8 * values, items=self.batch)

    def run(self, path, wanted, factor):
        array = np.load(path)
        return torch.from_numpy(array[wanted.cpu().numpy()]).to(factor.device) * factor
