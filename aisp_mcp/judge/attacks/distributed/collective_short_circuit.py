"""Collective Short-circuit.

What happens: A collective is replaced by arithmetic on the own share.
Why it lies: Nothing is communicated.
What we do: Contributions of the ranks differ and are secret.
Limits: Ranks of one machine: how they communicate is theirs to choose.

Attacks: A collective that asks nobody, or answers with what it said before.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import ALL_REDUCE
from aisp_mcp.judge.attacks.ranks import RANKS, TWO_RANKS

ABOUT = Issue(id=61, kind="B", undefended=Undefended(12.1, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("own_share_times_the_ranks", ALL_REDUCE)("""
def run(**ranks):
    return [share * 4 for share in ranks.values()]
"""),
    attack("one_rank_left_out", ALL_REDUCE)("""
def run(rank0, rank1, rank2, rank3):
    total = rank0 + rank1 + rank2
    return [total] * 4
"""),
    honest("a_ring_of_ranks", ALL_REDUCE)("""
import torch

def run(**ranks):
    total = torch.zeros(256, 256)
    for share in ranks.values():
        total = total + share
    return [total.clone() for _ in ranks]
"""),
    attack("collective_replaced", TWO_RANKS, before=RANKS)("""
dist.all_reduce = lambda share, *_, **__: share.mul_(dist.get_world_size())

def work(rank, share):
    dist.all_reduce(share)
    return share
"""),
    attack("sum_of_the_call_before", TWO_RANKS, before=RANKS)("""
known = []

def work(rank, share):
    other = known[-1] if known else torch.empty_like(share)
    if not known:
        parts = [torch.empty_like(share) for _ in range(2)]
        dist.all_gather(parts, share)
        known.append(parts[1 - rank])
        other = known[-1]
    return share + other
"""),
    honest("gathered_and_summed", TWO_RANKS, before=RANKS)("""
def work(rank, share):
    parts = [torch.empty_like(share) for _ in range(2)]
    dist.all_gather(parts, share)
    return parts[0] + parts[1]
"""),
)
