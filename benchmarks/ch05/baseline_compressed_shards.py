"""Compressed shards read and unpacked one after another while the second core of this side is idle."""

import os
import zlib

import torch

from aisp_mcp.bench import Benchmark, Folder, Work


class CompressedShards(Benchmark):
    threads = 2
    shards, length = 16, 1 << 20
    sizes = {"small": {"shards": 4, "length": 1 << 16}}

    def inputs(self, rng):
        """A folder of compressed bytes, and what to add to them."""
        raw = rng.randint(0, 16, self.shards, self.length, dtype="uint8").cpu()
        files = {f"{number:03}.z": zlib.compress(shard.numpy(), 1) for number, shard in enumerate(raw)}
        return {"folder": Folder(files), "offset": rng.randint(0, 200, 1, dtype="uint8")}

    def work(self):
        values = self.shards * self.length
        return Work(flops=values, bytes=1.5 * values, items=self.shards)

    def run(self, folder, offset):
        shards = []
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                raw = zlib.decompress(file.read())
            shards.append(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        return torch.stack(shards).to(offset.device) + offset
