"""Sharded weights, all gathered before the step; whole gradients all-reduced behind it, and cut to the own rows."""

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm

from aisp_mcp.bench import DistributedBenchmark, Tolerance, Work

RATE = 0.1


class Fsdp(DistributedBenchmark):
    rows, width, layers = 8192, 2048, 8
    sizes = {"small": {"rows": 128, "width": 256}, "large": {"width": 8192}}
    tolerance = Tolerance(error_ratio=64.0)

    def rank_inputs(self, rng):
        shards = rng.randn(self.layers, self.width, self.width, scale=0.1).chunk(self.ranks, 1)
        return [
            {
                "x": rng.randn(self.rows, self.width),
                "y": rng.randn(self.rows, self.width),
                "weights": shard.contiguous(),
            }
            for shard in shards
        ]

    def work(self):
        flops = 6 * self.rows * self.layers * self.width**2
        return Work(flops=self.ranks * flops, bytes=self.ranks * 8 * self.layers * self.width**2, items=self.rows)

    def run(self, x, y, weights):
        whole = [gathered(shard).requires_grad_() for shard in weights]
        loss(x, y, whole).backward()
        grads = []
        for one in whole:
            dist.all_reduce(one.grad)
            grads.append(one.grad.chunk(dist.get_world_size())[dist.get_rank()])
        return weights - RATE / dist.get_world_size() * torch.stack(grads)

    def rank_reference(self, ranks):
        whole = torch.cat([one["weights"] for one in ranks], 1).requires_grad_()
        sum(loss(one["x"], one["y"], whole) for one in ranks).backward()
        return list((whole - RATE / len(ranks) * whole.grad).detach().chunk(len(ranks), 1))


def gathered(shard):
    """The rows of all ranks."""
    whole = shard.new_empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
    dist.all_gather_into_tensor(whole, shard.contiguous())
    return whole


def loss(x, y, whole):
    for weight in whole:
        x = x + torch.relu(layer_norm(x, x.shape[1:]) @ weight)
    return (x - y).square().sum() / x.shape[0]
