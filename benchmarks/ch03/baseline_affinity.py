"""Workers that the scheduler places as it likes, each reducing its part of a batch again and again."""

from concurrent.futures import ThreadPoolExecutor

import torch

from aisp_mcp.bench import Benchmark, Needs, Work

POOL = ThreadPoolExecutor(2)


def reduced(part):
    total = part
    for _ in range(8):
        total = torch.tanh(total + part)
    return total


class Affinity(Benchmark):
    threads = 2
    parts, n = 2, 1 << 20
    sizes = {"small": {"n": 1 << 14}}
    needs = Needs(device="cpu")

    def inputs(self, rng):
        return {"x": rng.randn(self.parts, self.n)}

    def work(self):
        return Work(flops=16 * self.parts * self.n, bytes=8 * self.parts * self.n, items=self.parts)

    def run(self, x):
        return torch.stack(list(POOL.map(reduced, x)))
