"""Async Gradient Timing.

What happens: A reduction is returned before it is finished.
Why it lies: Its time is not counted.
What we do: Poisoned outputs, looked at while the process is stopped.
Limits: None known.

Attacks: A reduction that nobody waits for.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import ALL_REDUCE
from aisp_mcp.judge.attacks.ranks import RANKS, TWO_RANKS

ABOUT = Issue(id=65, kind="B", undefended=Undefended(1.23, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("reduction_still_under_way", ALL_REDUCE)("""
import threading, torch

def run(**ranks):
    results = [share.clone() for share in ranks.values()]
    def reduce():
        total = torch.stack(list(ranks.values())).sum(0)
        for result in results:
            result.copy_(total)
    threading.Thread(target=reduce, daemon=True).start()
    return results
"""),
    honest("reduction_waited_for", ALL_REDUCE)("""
from concurrent.futures import ThreadPoolExecutor
import torch

pool = ThreadPoolExecutor(1)

def run(**ranks):
    work = pool.submit(lambda: torch.stack(list(ranks.values())).sum(0))
    return [work.result()] * 4
"""),
    attack("collective_not_waited_for", TWO_RANKS, before=RANKS)("""
pending = []

def work(rank, share):
    pending.append((share, dist.all_reduce(share, async_op=True)))
    return share
"""),
    honest("collective_waited_for", TWO_RANKS, before=RANKS)("""
def work(rank, share):
    dist.all_reduce(share, async_op=True).wait()
    return share
"""),
)
