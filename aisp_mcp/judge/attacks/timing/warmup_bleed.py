"""Warmup Bleed.

What happens: Work is done in the warm-up and its results are shown afterwards.
Why it lies: Timed calls do no work.
What we do: Fresh inputs for every call; timed calls are verified.
Limits: Transformed static parameters are legitimate and are not looked at.

Attacks: Work in the warm-up, answers from memory afterwards.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=5, kind="B", undefended=Undefended(394, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("stale_after_five_calls", MATMUL_RELU)("""
import torch

calls, last = [0], [None]

def run(x, w):
    calls[0] += 1
    if calls[0] <= 5:
        last[0] = torch.relu(x @ w)
    return last[0]
"""),
    attack("slow_in_the_pilot", MATMUL_RELU)("""
import time, torch

calls = [0]

def run(x, w):
    calls[0] += 1
    if calls[0] <= 4:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
    return torch.relu(x @ w)
"""),
    honest("autotuning_in_the_warm_up", MATMUL_RELU)("""
import time, torch

ways = [lambda x, w: torch.relu(x @ w), lambda x, w: torch.mm(x, w).relu_(), lambda x, w: (w.T @ x.T).T.relu()]
ways[2] = lambda x, w: (w.T @ x.T).T.contiguous().relu_()
spent, best = [], []

def run(x, w):
    if best:
        return best[0](x, w)
    begin = time.perf_counter()
    y = ways[len(spent)](x, w)
    spent.append(time.perf_counter() - begin)
    if len(spent) == len(ways):
        best.append(ways[spent.index(min(spent))])
    return y
"""),
)
