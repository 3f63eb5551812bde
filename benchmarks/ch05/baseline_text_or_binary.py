"""A table parsed from CSV cell by cell, as loaders that grew out of a notebook do in every epoch."""

import csv

import torch

from aisp_mcp.bench import Benchmark, File, Work


class TextOrBinary(Benchmark):
    rows, columns = 1 << 14, 32
    sizes = {"small": {"rows": 128, "columns": 16}, "large": {"rows": 1 << 16}}

    def inputs(self, rng):
        """The same table as text and as float32 values, and a factor."""
        table = rng.randn(self.rows, self.columns).cpu()
        text = "\n".join(",".join(f"{value:.9g}" for value in row) for row in table.tolist())
        return {
            "text": File(text.encode(), "table.csv"),
            "binary": File(table, "table.f32"),
            "factor": rng.rand(self.columns),
        }

    def work(self):
        cells = self.rows * self.columns
        return Work(flops=cells, bytes=8 * cells, items=self.rows)

    def run(self, text, binary, factor):
        with open(text, newline="") as file:
            cells = [[float(cell) for cell in row] for row in csv.reader(file)]
        return torch.tensor(cells, dtype=factor.dtype).to(factor.device) * factor
