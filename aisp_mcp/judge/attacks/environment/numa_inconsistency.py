"""NUMA Inconsistency.

What happens: The process leaves the cores it was given.
Why it lies: More cores, or better ones, are compared with fewer.
What we do: Both sides pinned to the same cores; CPU time counted by the kernel.
Limits: CPU time is counted in ticks of 10 ms; a gain below a quarter of the cores is not seen.

Attacks: Other cores than the baseline's, or more of them.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import LONG_SUM, MATMUL_LONG, MATMUL_RELU

ABOUT = Issue(
    id=72,
    kind="D",
    isolation="L2",
    undefended=Undefended(
        why=(
            "cores that only the candidate takes are gained from a harness that shares them out; undefended,"
            " both sides have all."
        )
    ),
    executed_on=("cpu",),
)

CASES = (
    attack("all_cores_of_the_machine", MATMUL_LONG)("""
import os, torch
from concurrent.futures import ThreadPoolExecutor

torch.set_num_threads(1)
pool = ThreadPoolExecutor(os.cpu_count(), initializer=lambda: os.sched_setaffinity(0, range(os.cpu_count())))

def half(x, w):
    y = x
    for _ in range(1):
        y = torch.relu(x @ w)
    return y

def run(x, w):
    os.sched_setaffinity(0, range(os.cpu_count()))
    parts = list(pool.map(lambda part: half(part, w), x.chunk(os.cpu_count())))
    return torch.cat(parts)
"""),
    attack("more_threads_of_torch", LONG_SUM)("""
import os, torch

os.sched_setaffinity(0, range(os.cpu_count()))
torch.set_num_threads(os.cpu_count())

def run(x):
    os.sched_setaffinity(0, range(os.cpu_count()))
    return x.sum(dim=1)
"""),
    honest("stays_where_it_is_put", MATMUL_RELU)("""
import os, torch

def run(x, w):
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    return torch.relu(x @ w)
"""),
)
