"""A tiny benchmark of two ranks, as source text: real processes, a real collective, no GPU."""

_IMPORTS = "import torch\nimport torch.distributed as dist\n"

TWO_RANKS = (
    '"""Two ranks: each ends with the sum of both."""\n'
    + _IMPORTS
    + """
from aisp_mcp.bench import DistributedBenchmark


class TwoRanks(DistributedBenchmark):
    ranks = 2
    in_place = ("share",)
    shares_inputs = True

    def rank_inputs(self, rng):
        return [{"share": rng.randn(256, 256)} for _ in range(2)]

    def run(self, share):
        dist.all_reduce(share)
        return share

    def rank_reference(self, ranks):
        return [ranks[0]["share"] + ranks[1]["share"]] * 2
"""
)
# Of candidates: the rest is a function work(rank, share).
RANKS = _IMPORTS + "\ndef run(share):\n    return work(dist.get_rank(), share)\n"
