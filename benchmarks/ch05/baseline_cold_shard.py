"""A shard that is not in the page cache, read in blocks from its end to its start with read-ahead switched off."""

import os

import torch

from aisp_mcp.bench import Benchmark, File, Work


class ColdShard(Benchmark):
    blocks, block = 1 << 12, 16384
    sizes = {"small": {"blocks": 64}}

    def inputs(self, rng):
        """A file that lies on the disk alone, and a factor."""
        values = rng.randn(self.blocks * self.block // 4)
        return {"path": File(values, "shard.f32", cache="cold"), "factor": rng.rand(1)}

    def work(self):
        values = self.blocks * self.block // 4
        return Work(flops=values, bytes=8 * values, items=self.blocks)

    def run(self, path, factor):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        numbers = reversed(range(os.fstat(fd).st_size // self.block))
        parts = [os.pread(fd, self.block, number * self.block) for number in numbers]
        os.close(fd)
        values = torch.frombuffer(bytearray(b"".join(reversed(parts))), dtype=torch.float32)
        return values.to(factor.device) * factor
