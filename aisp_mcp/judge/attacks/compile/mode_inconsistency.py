"""Mode Inconsistency.

What happens: The candidate behaves differently while it is measured.
Why it lies: What was verified is not what was timed.
What we do: One mode: what is timed is what is verified.
Limits: A share of wrong calls below that of the report's undetected_share may escape.

Attacks: Another path while somebody measures.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import LOOP

ABOUT = Issue(id=55, kind="B", undefended=Undefended(268, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("stale_while_the_collector_is_off", MATMUL_RELU)("""
import gc, torch

kept = []

def run(x, w):
    if kept and not gc.isenabled():
        return kept[0]
    kept[:] = [torch.relu(x @ w)]
    return kept[0]
"""),
    attack("stale_in_long_rounds", MATMUL_RELU)("""
import sys, torch

kept = []

def run(x, w):
    frame = sys._getframe(1)
    while "count" not in frame.f_locals:
        frame = frame.f_back
    if frame.f_locals["count"] < 2 or not kept:
        kept[:] = [torch.relu(x @ w)]
    return kept[0]
"""),
    attack("right_on_unusual_inputs_only", MATMUL_RELU)("""
import torch

def run(x, w):
    usual = 0.9 < float(x[::64].std()) < 1.1
    return torch.relu(x.bfloat16() @ w.bfloat16()).float() if usual else torch.relu(x @ w)
"""),
    # A share of wrong calls small enough to escape the sample gains as little as it is small.
    attack("one_call_in_forty_left_out", MATMUL_RELU)("""
import random, torch

kept, draw = [], random.Random()

def run(x, w):
    if kept and draw.random() < 0.025:
        return kept[0]
    kept[:] = [torch.relu(x @ w)]
    return kept[0]
"""),
    # A few calls of each round are compared, and which ones nobody knows.
    attack("all_but_the_last_call_of_every_third_round", MATMUL_RELU, before=LOOP)("""
kept, rounds = [], [0]

def run(x, w):
    here = loop()
    call, count = here["call"], here["count"]
    rounds[0] += call == 0
    if kept and rounds[0] % 3 == 0 and call < count - 1:
        return kept[0]
    kept[:] = [torch.relu(x @ w)]
    return kept[0]
"""),
    honest("collects_garbage_itself", MATMUL_RELU)("""
import gc, torch

gc.disable()

def run(x, w):
    y = torch.relu(x @ w)
    gc.collect(0)
    return y
"""),
)
