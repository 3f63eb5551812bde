"""Data-parallel step of eight residual layers: gradients all-reduced one by one when backward has ended."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, layer_norm

from aisp_mcp.bench import DistributedBenchmark, Tolerance, Work

RATE = 0.1


class Ddp(DistributedBenchmark):
    rows, width, classes, layers = 8192, 1024, 1024, 8
    sizes = {"small": {"rows": 128, "width": 64, "classes": 64}, "large": {"width": 4096, "layers": 16}}
    tolerance = Tolerance(error_ratio=64.0)

    def rank_inputs(self, rng):
        return [
            {"x": rng.randn(self.rows, self.width), "y": rng.randint(0, self.classes, self.rows)}
            for _ in range(self.ranks)
        ]

    def rank_params(self, rng):
        names = {f"w{n}": rng.randn(self.width, self.width, scale=0.1) for n in range(self.layers)}
        names["head"] = rng.randn(self.width, self.classes, scale=0.1)
        return [{name: weight.clone() for name, weight in names.items()} for _ in range(self.ranks)]

    def work(self):
        flops = 6 * self.rows * self.width * (self.layers * self.width + self.classes)
        moved = 4 * self.width * (self.layers * self.width + self.classes)
        return Work(flops=self.ranks * flops, bytes=self.ranks * moved, items=self.ranks * self.rows)

    def run(self, x, y, **weights):
        named = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        loss(x, y, named).backward()
        for weight in named.values():
            dist.all_reduce(weight.grad)
            weight.grad /= dist.get_world_size()
        return {name: (weight - RATE * weight.grad).detach() for name, weight in named.items()}

    def rank_reference(self, ranks):
        named = {n: w.detach().requires_grad_() for n, w in ranks[0].items() if n not in ("x", "y")}
        sum(loss(rank["x"], rank["y"], named) for rank in ranks).backward()
        found = {name: (weight - RATE / len(ranks) * weight.grad).detach() for name, weight in named.items()}
        return [found] * len(ranks)


def loss(x, y, weights):
    for name in sorted(weights.keys() - {"head"}):
        x = x + torch.relu(layer_norm(x, x.shape[1:]) @ weights[name])
    return cross_entropy(layer_norm(x, x.shape[1:]) @ weights["head"], y)
