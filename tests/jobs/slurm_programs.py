"""Programs that the Slurm tests run on the nodes: a specification of one process, and a sum over ranks."""

from __future__ import annotations

SUM = '''"""Sum of a vector."""
from aisp_mcp.bench import Benchmark, Work


class Total(Benchmark):
    n = 1 << 16

    def inputs(self, rng):
        return {"x": rng.randn(self.n)}

    def work(self):
        return Work(bytes=4 * self.n)

    def run(self, x):
        return x.sum()
'''

REDUCE = """import json, os
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
found = {"sum": x.mean().item(), "node": os.environ["SLURMD_NODENAME"]}
Path(__file__).with_name(f"rank{rank}.json").write_text(json.dumps(found))
dist.destroy_process_group()
"""
