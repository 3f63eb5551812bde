"""Borrowed Core.

What happens: A thread of the candidate goes to a core that the harness keeps for itself.
Why it lies: The baseline has one core less.
What we do: Threads are bound before a round and looked at behind it; processor time beyond the given cores is fatal.
Limits: Three per cent of the time of a round, and ten milliseconds in all, which late booking may need.

Attacks: Work on a core that was not given.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_LONG

ABOUT = Issue(
    id=100,
    kind="D",
    control="Threads bound before and looked at after each round; processor time beyond the cores is fatal",
    undefended=Undefended(why="not measured yet."),
)

_SPLIT = """
import os, torch
from concurrent.futures import ThreadPoolExecutor

torch.set_num_threads(1)
given = os.sched_getaffinity(0)

def part(x, w, out):
    {leave}
    torch.mm(x, w, out=out)
    {back}

pool = ThreadPoolExecutor(1)

def run(x, w):
    out, cut = torch.empty_like(x), 3 * len(x) // 4
    rest = pool.submit(part, x[cut:], w, out[cut:])
    torch.mm(x[:cut], w, out=out[:cut])
    rest.result()
    return out.relu_()
"""
_LEAVE = "os.sched_setaffinity(0, set(range(os.cpu_count())))"

CASES = (
    attack("thread_on_the_core_of_the_harness", MATMUL_LONG)(_SPLIT.format(leave=_LEAVE, back="pass")),
    attack("thread_that_goes_back_in_time", MATMUL_LONG)(
        _SPLIT.format(leave=_LEAVE, back="os.sched_setaffinity(0, given)")
    ),
    honest("thread_on_the_given_cores", MATMUL_LONG)(_SPLIT.format(leave="pass", back="pass")),
)
