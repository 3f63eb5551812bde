"""Records in shuffled order from a shard that is not in the page cache: a request to the disk for nearly each."""

import os

import torch

from aisp_mcp.bench import Benchmark, File, Work


class ColdShard(Benchmark):
    blocks, block = 1 << 12, 16384
    sizes = {"small": {"blocks": 64}}

    def inputs(self, rng):
        """A file of records that is on the disk alone, an order on the device, and a factor."""
        values = rng.randn(self.blocks * self.block // 4)
        shard = File(values, "shard.f32", cache="cold")
        return {"path": shard, "order": rng.permutation(self.blocks), "factor": rng.rand(1)}

    def work(self):
        values = self.blocks * self.block // 4
        return Work(flops=values, bytes=8 * values, items=self.blocks)

    def run(self, path, order, factor):
        """The records in that order, times the factor."""
        fd = os.open(path, os.O_RDONLY)
        parts = [os.pread(fd, self.block, number * self.block) for number in order.tolist()]
        os.close(fd)
        values = torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.float32).view(len(parts), -1)
        return values.to(factor.device) * factor
