"""Batches copied to the device and multiplied in turn: the copy engine and the processors wait for each other."""

import torch

from aisp_mcp.bench import Benchmark, Host, Work


class Prefetch(Benchmark):
    batches, n = 8, 2048
    sizes = {"small": {"batches": 4, "n": 96}}

    def params(self, rng):
        return {"weight": rng.randn(self.n, self.n)}

    def inputs(self, rng):
        return {"batches": Host(rng.randn(self.batches, self.n, self.n))}

    def work(self):
        return Work(flops=2 * self.batches * self.n**3, bytes=8 * self.batches * self.n**2, items=self.batches)

    def run(self, batches, weight):
        return torch.stack([batch.to(weight.device) @ weight for batch in batches])
