"""Two pipeline stages and one batch: the second stage waits for all of the first, and then the first one rests."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class PipelineMicrobatches(DistributedBenchmark):
    rows, width, depth = 8192, 2048, 4
    sizes = {"small": {"rows": 1024, "width": 256}, "large": {"rows": 32768}}

    def rank_inputs(self, rng):
        return [{"x": rng.randn(self.rows, self.width)}, *({} for _ in range(self.ranks - 1))]

    def rank_params(self, rng):
        return [{"w": rng.randn(self.depth, self.width, self.width, scale=0.05)} for _ in range(self.ranks)]

    def work(self):
        flops = 2 * self.ranks * self.depth * self.rows * self.width**2
        return Work(flops=flops, bytes=4 * self.rows * self.width * self.ranks, items=self.rows)

    def run(self, w, x=None):
        rank, last = dist.get_rank(), dist.get_world_size() - 1
        if rank:
            x = w.new_empty(self.rows, self.width)
            dist.recv(x, rank - 1)
        for layer in w:
            x = torch.relu(x @ layer)
        if rank == last:
            return x
        dist.send(x, rank + 1)
        return []

    def rank_reference(self, ranks):
        x = ranks[0]["x"]
        for layer in (layer for rank in ranks for layer in rank["w"]):
            x = torch.relu(x @ layer)
        return [*([] for _ in ranks[1:]), x]
