"""Warmup Computation.

What happens: The first result is kept for ever.
Why it lies: Timed calls do no work.
What we do: Timed calls are verified on inputs of their own.
Limits: None known.

Attacks: The result of the first call for all later ones.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=32, kind="B", undefended=Undefended(606, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("first_result_for_ever", MATMUL_RELU)("""
import torch

kept = []

def run(x, w):
    if not kept:
        kept.append(torch.relu(x @ w))
    return kept[0]
"""),
    honest("first_call_allocates", MATMUL_RELU)("""
import torch

kept = []

def run(x, w):
    if not kept:
        kept.append(torch.empty(256, 256))
    return torch.mm(x, w, out=kept[0]).relu_()
"""),
)
