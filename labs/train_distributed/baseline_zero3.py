"""Adam on sharded states, with all weights gathered for the whole step and whole gradients until its end."""

import torch.distributed as dist
from _common import expected_gradients, summed_gradients

from aisp_mcp.bench import DistributedBenchmark, Tolerance, Work

RATE, BETA1, BETA2, EPS = 1e-2, 0.9, 0.99, 1e-6


class Zero3(DistributedBenchmark):
    goal = "memory"
    rows, width, layers = 2048, 4096, 16
    sizes = {"small": {"rows": 64, "width": 512, "layers": 8}, "large": {"width": 8192, "layers": 32}}
    tolerance = Tolerance(error_ratio=64.0)

    def rank_inputs(self, rng):
        shape = self.layers, self.width // self.ranks, self.width
        return [
            {
                "x": rng.randn(self.rows, self.width),
                "y": rng.randn(self.rows, self.width),
                "weights": rng.randn(*shape, scale=0.1),
                "first": rng.randn(*shape),
                "second": rng.rand(*shape).abs() + 0.1,
            }
            for _ in range(self.ranks)
        ]

    def work(self):
        flops = 6 * self.rows * self.layers * self.width**2
        return Work(flops=self.ranks * flops, bytes=self.ranks * 24 * self.layers * self.width**2, items=self.rows)

    def run(self, x, y, weights, first, second):
        return adam(summed_gradients(x, y, weights) / dist.get_world_size(), weights, first, second)

    def rank_reference(self, ranks):
        grads = (grad / len(ranks) for grad in expected_gradients(ranks))
        states = ((rank["weights"], rank["first"], rank["second"]) for rank in ranks)
        return [adam(grad, *state) for grad, state in zip(grads, states, strict=True)]


def adam(grads, weights, first, second):
    """New weights, first and second moments of one step, by name."""
    first = BETA1 * first + (1 - BETA1) * grads
    second = BETA2 * second + (1 - BETA2) * grads * grads
    return {"weights": weights - RATE * first / (second.sqrt() + EPS), "first": first, "second": second}
