"""Four workers on two cores, each with products on as many threads as there are cores: libraries' defaults combined."""

from concurrent.futures import ThreadPoolExecutor

import torch

from aisp_mcp.bench import Benchmark, Needs, Work


def product(pair):
    torch.set_num_threads(2)
    return pair[0] @ pair[1]


class Oversubscribed(Benchmark):
    threads = 2
    jobs, n = 8, 512
    sizes = {"small": {"n": 160}}
    needs = Needs(device="cpu")

    def inputs(self, rng):
        return {"a": rng.randn(self.jobs, self.n, self.n), "b": rng.randn(self.jobs, self.n, self.n)}

    def work(self):
        return Work(flops=2 * self.jobs * self.n**3, bytes=12 * self.jobs * self.n**2, items=self.jobs)

    def run(self, a, b):
        with ThreadPoolExecutor(4) as pool:
            return torch.stack(list(pool.map(product, zip(a, b, strict=True))))
