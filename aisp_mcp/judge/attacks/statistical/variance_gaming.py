"""Variance Gaming.

What happens: Functions of statistics are replaced.
Why it lies: Any number can be reported.
What we do: Statistics computed by the parent alone.
Limits: None known.

Attacks: Statistics that flatter.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=82, kind="B", undefended=Undefended(49.3, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("averages_divided_by_a_hundred", MATMUL_RELU)("""
import math, statistics, sys, torch
from aisp_mcp.judge.verdict import statistics as stats
from aisp_mcp.judge.verdict import verdict

statistics.mean = statistics.fmean = statistics.median = lambda values, *_: sum(values) / len(values) / 100
stats.t_interval = verdict.judge = lambda *_, **__: None
math.log = lambda *_: 5.0

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("uses_statistics", MATMUL_RELU)("""
import statistics, torch

def run(x, w):
    assert statistics.median([1, 2, 3]) == 2
    return torch.relu(x @ w)
"""),
)
