"""A batch read from a folder with one file per sample, as datasets are unpacked."""

import os

import torch

from aisp_mcp.bench import Benchmark, File, Folder, Work


class SmallFiles(Benchmark):
    samples, length = 256, 4096
    sizes = {"small": {"samples": 64, "length": 1024}}

    def inputs(self, rng):
        """The same samples as a folder of files and one behind the other in a file, and a factor."""
        samples = rng.randn(self.samples, self.length).cpu()
        files = {f"{number:05}.f32": sample for number, sample in enumerate(samples)}
        return {"folder": Folder(files), "shard": File(samples, "samples.f32"), "factor": rng.rand(self.length)}

    def work(self):
        values = self.samples * self.length
        return Work(flops=values, bytes=8 * values, items=self.samples)

    def run(self, folder, shard, factor):
        samples = []
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                samples.append(torch.frombuffer(bytearray(file.read()), dtype=torch.float32))
        return torch.stack(samples).to(factor.device) * factor
