"""Rows of very different lengths reduced by a padded block: all rows take as long as the longest."""

import torch

from aisp_mcp.bench import Benchmark, Tolerance, Work


class WorkQueue(Benchmark):
    rows, elements = 8192, 1 << 24
    sizes = {"small": {"rows": 64, "elements": 1 << 16}, "large": {"rows": 65536, "elements": 1 << 28}}

    # The longest rows have thousands of terms: added one by one they err up to 340 times as much as in pairs.
    tolerance = Tolerance(error_ratio=1024)

    def inputs(self, rng):
        """Rows one behind the other. Their lengths fall off like a power law, as in a list of users by activity.

        The longest has five times the mean: with the usual secret factors it could have a thousand times.
        """
        share = rng.rand(self.rows, scale=1.0).abs().clamp(min=0.05).pow(4).sort(descending=True).values
        ends = (share.double().cumsum(0) / share.sum() * self.elements).long().clamp(max=self.elements)
        ends = ends.cummax(0).values  # sums in parallel may step back by a rounding
        ends[-1] = self.elements
        return {"x": rng.randn(self.elements), "ends": ends}

    def work(self):
        return Work(flops=3 * self.elements, bytes=4 * (self.elements + self.rows) + 8 * self.rows, items=self.rows)

    def run(self, x, ends):
        """The sum of x / (1 + |x|) over each row."""
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        lengths = ends - begins
        place = torch.arange(int(lengths.max()), device=x.device)
        padded = x[(begins[:, None] + place).clamp(max=len(x) - 1)].where(place < lengths[:, None], 0)
        return (padded / (1 + padded.abs())).sum(dim=1)
