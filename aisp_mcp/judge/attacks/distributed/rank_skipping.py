"""Rank Skipping.

What happens: Some ranks do not work.
Why it lies: Their share of the time is missing.
What we do: Every rank's output verified.
Limits: A rank may share memory with another one of its side, as on one machine any transport may.

Attacks: A rank that does not work, one that skips the collective, one that leaves its result to another.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import ALL_REDUCE
from aisp_mcp.judge.attacks.ranks import RANKS, TWO_RANKS

ABOUT = Issue(id=60, kind="B", undefended=Undefended(16.1, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("only_the_first_rank_answers", ALL_REDUCE)("""
import torch

def run(**ranks):
    total = torch.stack(list(ranks.values())).sum(0)
    return [total] + [torch.empty_like(total) for _ in range(3)]
"""),
    honest("all_ranks_share_one_sum", ALL_REDUCE)("""
def run(rank0, rank1, rank2, rank3):
    total = rank0 + rank1 + rank2 + rank3
    return [total] * 4
"""),
    attack("second_rank_keeps_its_share", TWO_RANKS, before=RANKS)(
        "def work(rank, share):\n    return share if rank else share.add_(share)\n"
    ),
    attack("second_rank_skips_the_collective", TWO_RANKS, before=RANKS, slow=True)("""
def work(rank, share):
    if rank == 0:
        dist.all_reduce(share)
    return share
"""),
    attack("first_rank_works_for_both", TWO_RANKS, before=RANKS)("""
sent = []

def work(rank, share):
    if rank:
        sent.append((share, dist.isend(share, 0)))
        return torch.empty_like(share)
    other = torch.empty_like(share)
    dist.recv(other, 1)
    return share + other
"""),
    honest("one_rank_sums_and_tells", TWO_RANKS, before=RANKS)("""
def work(rank, share):
    other = torch.empty_like(share)
    if rank:
        dist.send(share, 0)
        dist.recv(other, 0)
        return other
    dist.recv(other, 1)
    other += share
    dist.send(other, 1)
    return other
"""),
)
