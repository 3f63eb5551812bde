"""Data-parallel step of a small model: gradients in one bucket, averaged by NCCL's all-reduce."""

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm

from aisp_mcp.bench import DistributedBenchmark, Needs, Tolerance, Work

RATE = 0.1


class SymmemTraining(DistributedBenchmark):
    needs = Needs(gpus=2, gpu=("p2p", "nvlink"))
    rows, width, layers = 512, 256, 4
    sizes = {"small": {"rows": 64, "width": 64}, "large": {"width": 1024}}
    tolerance = Tolerance(error_ratio=64.0)

    def rank_inputs(self, rng):
        return [
            {"x": rng.randn(self.rows, self.width), "y": rng.randn(self.rows, self.width)} for _ in range(self.ranks)
        ]

    def rank_params(self, rng):
        weights = rng.randn(self.layers, self.width, self.width, scale=0.1)
        return [{"weights": weights.clone()} for _ in range(self.ranks)]

    def work(self):
        numel = self.layers * self.width**2
        return Work(flops=self.ranks * 6 * self.rows * numel, bytes=self.ranks * 4 * numel, items=self.rows)

    def run(self, x, y, weights):
        weights = weights.detach().requires_grad_()
        loss(x, y, weights).backward()
        dist.all_reduce(weights.grad)
        return (weights - RATE / dist.get_world_size() * weights.grad).detach()

    def rank_reference(self, ranks):
        weights = ranks[0]["weights"].detach().requires_grad_()
        sum(loss(rank["x"], rank["y"], weights) for rank in ranks).backward()
        return [(weights - RATE / len(ranks) * weights.grad).detach()] * len(ranks)


def loss(x, y, weights):
    for weight in weights:
        x = x + torch.relu(layer_norm(x, x.shape[1:]) @ weight)
    return (x - y).square().sum() / x.shape[0]
