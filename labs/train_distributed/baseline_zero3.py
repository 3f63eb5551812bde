"""Adam on sharded states, with all weights gathered for the whole step and whole gradients until its end."""

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm

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
        whole = [gathered(shard).requires_grad_() for shard in weights]
        loss(x, y, whole).backward()
        grads = []
        for one in whole:
            dist.all_reduce(one.grad)
            grads.append(one.grad.chunk(dist.get_world_size())[dist.get_rank()])
        return adam(torch.stack(grads) / dist.get_world_size(), weights, first, second)

    def rank_reference(self, ranks):
        whole = torch.cat([one["weights"] for one in ranks], 1).requires_grad_()
        sum(loss(one["x"], one["y"], whole) for one in ranks).backward()
        grads = (whole.grad / len(ranks)).chunk(len(ranks), 1)
        states = ((one["weights"], one["first"], one["second"]) for one in ranks)
        return [adam(grad, *state) for grad, state in zip(grads, states, strict=True)]


def gathered(shard):
    """The rows of all ranks."""
    whole = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
    dist.all_gather_into_tensor(whole, shard.contiguous())
    return whole


def loss(x, y, whole):
    for weight in whole:
        x = x + torch.relu(layer_norm(x, x.shape[1:]) @ weight)
    return (x - y).square().sum() / x.shape[0]


def adam(grads, weights, first, second):
    """New weights, first and second moments of one step, by name."""
    first = BETA1 * first + (1 - BETA1) * grads
    second = BETA2 * second + (1 - BETA2) * grads * grads
    return {"weights": weights - RATE * first / (second.sqrt() + EPS), "first": first, "second": second}
