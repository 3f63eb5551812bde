"""Barrier Timing.

What happens: Work is done before the common start.
Why it lies: It is not in the interval.
What we do: Inputs do not exist before the start.
Limits: Batching across calls, as far as rounds of one call do not resolve it.

Attacks: Work before the common start; one collective for the calls of a whole round.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import ALL_REDUCE
from aisp_mcp.judge.attacks.ranks import RANKS, TWO_RANKS
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=63, kind="B", undefended=Undefended(43.4, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("next_call_started_in_this_one", ALL_REDUCE, before=WORKER)("""
ahead, store = {}, type(worker).store

def total(call):
    return torch.stack(list(worker.inputs[call].values())).sum(0)

def stored(self, call, output):
    store(self, call, output)
    if call + 1 < len(worker.inputs):
        ahead[call + 1] = total(call + 1)

type(worker).store = stored

def run(**ranks):
    call = loop()["call"]
    return [ahead.pop(call) if call else total(call)] * 4
"""),
    attack("one_collective_for_all_calls", TWO_RANKS, before=WORKER, slow=True)("""
import torch.distributed as dist

sums = []

def run(share):
    frame = loop()
    call, count = frame["call"], frame["count"]
    if not call:
        sums[:] = [torch.stack([worker.inputs[one]["share"] for one in range(count)])]
        dist.all_reduce(sums[0])
    return sums[0][call]
"""),
    honest("sum_by_halves_that_meet", TWO_RANKS, before=RANKS)("""
def work(rank, share):
    half = torch.empty_like(share[:128])
    dist.reduce_scatter(half, [one.contiguous() for one in share.chunk(2)])
    parts = [torch.empty_like(half) for _ in range(2)]
    dist.all_gather(parts, half)
    return torch.cat(parts)
"""),
    honest("ranks_that_wait_for_each_other", ALL_REDUCE)("""
import threading

def run(**ranks):
    barrier, total = threading.Barrier(2), [None, None]
    shares = list(ranks.values())
    def rank(i):
        total[i] = shares[2 * i] + shares[2 * i + 1]
        barrier.wait()
    other = threading.Thread(target=rank, args=(1,))
    other.start()
    rank(0)
    other.join()
    return [total[0] + total[1]] * 4
"""),
)
