"""A new padded buffer for every batch of an epoch, in pageable memory: allocated, cleared, filled and copied."""

import torch

from aisp_mcp.bench import Benchmark, Host, Work


class BatchBuffers(Benchmark):
    batches, rows, columns, padded = 8, 1024, 1000, 1024
    sizes = {"small": {"rows": 64, "columns": 240, "padded": 256}}

    def inputs(self, rng):
        """Batches of bytes in host memory (batch, row, column), and a factor on the device for each padded column."""
        batches = rng.randint(0, 256, self.batches, self.rows, self.columns, dtype="uint8")
        return {"batches": Host(batches), "factor": rng.rand(self.padded)}

    def work(self):
        cells = self.batches * self.rows * self.padded
        return Work(flops=2 * cells, bytes=cells + 4 * self.batches * self.rows, items=self.batches * self.rows)

    def run(self, batches, factor):
        sums = []
        for batch in batches:
            room = torch.zeros(len(batch), len(factor), dtype=torch.uint8)
            room[:, : batch.shape[1]] = batch
            sums.append(room.to(factor.device).to(factor.dtype) @ factor)
        return torch.stack(sums)
