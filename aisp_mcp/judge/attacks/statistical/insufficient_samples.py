"""Insufficient Samples.

What happens: The candidate is slow at first, so that few samples are taken.
Why it lies: A few lucky samples decide.
What we do: Numbers of calls and rounds planned by the parent from the baseline's time.
Limits: None known.

Attacks: So slow at first that few samples are taken.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(
    id=84,
    kind="B",
    undefended=Undefended(why="it makes samples few and the result uncertain, and no better."),
    executed_on=("cpu",),
)

CASES = (
    attack("one_good_sample_after_a_slow_start", MATMUL_RELU)("""
import time, torch

calls = [0]

def run(x, w):
    calls[0] += 1
    if calls[0] <= 30:
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            pass
    return torch.relu(x @ w)
"""),
    honest("slow_first_call", MATMUL_RELU)("""
import torch

table = []

def run(x, w):
    if not table:
        table.extend(sorted(range(200_000), key=lambda i: -i))
    return torch.relu(x @ w)
"""),
)
