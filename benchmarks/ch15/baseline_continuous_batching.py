"""Static batches: requests start together, and finished ones keep their slot until the longest is done."""

import math

import torch

from aisp_mcp.bench import Benchmark, Work

LONGEST = 32


class ContinuousBatching(Benchmark):
    jobs, width, dtype = 2048, 8192, "bfloat16"
    sizes = {"small": {"jobs": 96, "width": 256, "dtype": "float32"}, "large": {"jobs": 8192}}

    def params(self, rng):
        return {"weight": rng.randn(self.width, self.width, dtype=self.dtype) / math.sqrt(self.width)}

    def inputs(self, rng):
        return {
            "x": rng.randn(self.jobs, self.width, dtype=self.dtype),
            "steps": rng.randint(1, LONGEST + 1, self.jobs),
        }

    def work(self):
        steps = self.jobs * (LONGEST + 1) / 2
        elements = self.width**2 + 2 * self.jobs * self.width
        return Work(
            flops=2 * steps * self.width**2,
            bytes=elements * getattr(torch, self.dtype).itemsize + 8 * self.jobs,
            items=steps,
        )

    def run(self, x, steps, weight):
        """The state of each job after its own number of decode steps; an eighth of the jobs fit at a time."""
        slots, ends, wanted = x.shape[0] // 8, torch.empty_like(x), steps.tolist()
        for first in range(0, x.shape[0], slots):
            state, mine = x[first : first + slots], wanted[first : first + slots]
            for step in range(1, max(mine) + 1):
                state = torch.tanh(state @ weight)
                done = [slot for slot, count in enumerate(mine) if count == step]
                ends[[first + slot for slot in done]] = state[done]
        return ends
