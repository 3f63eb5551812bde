"""Records read in shuffled order, one seek and one buffered read each, as a map-style dataset over a file does."""

import torch

from aisp_mcp.bench import Benchmark, File, Work


class RecordOrder(Benchmark):
    records, batch, length = 1 << 16, 1 << 12, 128
    sizes = {"small": {"records": 1 << 12, "batch": 512, "length": 64}}

    def inputs(self, rng):
        """A file of records of float32 values, the numbers of those of a batch, and a factor for each column."""
        order = rng.permutation(self.records)[: self.batch].contiguous()
        records = File(rng.randn(self.records, self.length), "records.f32")
        return {"path": records, "order": order, "factor": rng.rand(self.length)}

    def work(self):
        values = self.batch * self.length
        return Work(flops=values, bytes=8 * values, items=self.batch)

    def run(self, path, order, factor):
        size, records = 4 * self.length, []
        with open(path, "rb") as file:
            for number in order.tolist():
                file.seek(number * size)
                records.append(torch.frombuffer(bytearray(file.read(size)), dtype=torch.float32))
        return torch.stack(records).to(factor.device) * factor
