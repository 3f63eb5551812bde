"""Metrics gathered on rank 0, averaged there and broadcast again, one metric at a time, with a barrier after each."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class MetricsToRank0(DistributedBenchmark):
    metrics, bins = 32, 64

    def rank_inputs(self, rng):
        return [{"values": rng.randn(self.metrics, self.bins)} for _ in range(self.ranks)]

    def work(self):
        return Work(bytes=4 * self.metrics * self.bins * self.ranks, items=self.metrics)

    def run(self, values):
        first, means = dist.get_rank() == 0, []
        for value in values:
            parts = [torch.empty_like(value) for _ in range(dist.get_world_size())] if first else None
            dist.gather(value, parts, dst=0)
            mean = torch.stack(parts).mean(0) if first else torch.empty_like(value)
            dist.broadcast(mean, src=0)
            dist.barrier()
            means.append(mean)
        return torch.stack(means)

    def rank_reference(self, ranks):
        return [torch.stack([rank["values"] for rank in ranks]).mean(0)] * len(ranks)
