"""Tensors sent from rank 0 one by one with broadcast_object_list: two collectives and a pickle for each of them."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class BroadcastObjects(DistributedBenchmark):
    tensors, numel = 64, 65536
    sizes = {"small": {"tensors": 16, "numel": 4096}, "large": {"numel": 1048576}}

    def rank_inputs(self, rng):
        return [{"state": rng.randn(self.tensors, self.numel)} for _ in range(self.ranks)]

    def work(self):
        return Work(bytes=4 * self.tensors * self.numel * (self.ranks - 1))

    def run(self, state):
        found = []
        for tensor in state:
            box = [tensor.clone() if dist.get_rank() == 0 else None]
            dist.broadcast_object_list(box, src=0)
            found.append(box[0].to(state.device))
        return torch.stack(found)

    def rank_reference(self, ranks):
        return [ranks[0]["state"].clone() for _ in ranks]
