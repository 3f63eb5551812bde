"""Results of all ranks collected with all_gather_object: dictionaries of tensors pickled, padded, unpickled."""

import torch
import torch.distributed as dist

from aisp_mcp.bench import DistributedBenchmark, Work


class GatherObjects(DistributedBenchmark):
    rows, cols = 4096, 64
    sizes = {"small": {"rows": 1024}, "large": {"rows": 65536}}

    def rank_inputs(self, rng):
        return [
            {"logits": rng.randn(self.rows, self.cols), "labels": rng.randint(0, self.cols, self.rows)}
            for _ in range(self.ranks)
        ]

    def work(self):
        return Work(bytes=self.rows * (4 * self.cols + 8) * self.ranks)

    def run(self, logits, labels):
        found = [None] * dist.get_world_size()
        own = {"logits": logits.clone(), "labels": labels.clone()}  # pickling a view would take its whole storage along
        dist.all_gather_object(found, own)
        return {name: torch.cat([one[name].to(logits.device) for one in found]) for name in ("labels", "logits")}

    def rank_reference(self, ranks):
        return [{name: torch.cat([rank[name] for rank in ranks]) for name in ("labels", "logits")} for _ in ranks]
