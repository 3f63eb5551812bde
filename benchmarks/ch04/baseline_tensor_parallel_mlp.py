"""Both products of an MLP split by columns: each rank gathers the whole activation twice."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class TensorParallelMlp(DistributedBenchmark):
    tokens, width = 4096, 4096
    sizes = {"small": {"tokens": 256, "width": 128}, "large": {"tokens": 16384}}

    def rank_inputs(self, rng):
        x = rng.randn(self.tokens, self.width)
        return [{"x": x.clone()} for _ in range(self.ranks)]

    def rank_params(self, rng):
        up = rng.randn(self.width, 4 * self.width, scale=0.05)
        down = rng.randn(4 * self.width, self.width, scale=0.05)
        both = zip(up.chunk(self.ranks, 1), down.chunk(self.ranks, 1), strict=True)
        return [{"up": one.contiguous(), "down": other.contiguous()} for one, other in both]

    def work(self):
        return Work(flops=16 * self.tokens * self.width**2, bytes=32 * self.width**2)

    def run(self, x, up, down):
        hidden = torch.relu(columns(x @ up))
        return columns(hidden @ down)

    def rank_reference(self, ranks):
        up, down = (torch.cat([rank[name] for rank in ranks], 1) for name in ("up", "down"))
        return [torch.relu(ranks[0]["x"] @ up) @ down] * len(ranks)


def columns(part):
    """All columns of a matrix whose columns are spread over the ranks."""
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part)
    return torch.cat(parts, 1)
