"""Trace Reuse.

What happens: A trace knows one branch of a program.
Why it lies: The other branch is not computed.
What we do: Inputs that take every branch; timed calls verified.
Limits: A branch that the declared inputs never take is not seen.

Attacks: A trace that knows one branch.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import BRANCH

ABOUT = Issue(id=54, kind="N", undefended=Undefended(1.08, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("trace_of_one_branch", BRANCH)("""
import torch

def original(x):
    return torch.softmax(x * 2, 1) if x.sum() > 0 else torch.softmax(x - 3, 0)

import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    run = torch.jit.trace(original, torch.ones(256, 256), check_trace=False)
"""),
    honest("both_branches_compiled", BRANCH)("""
import torch

def first(x):
    return torch.softmax(x * 2, 1)

def second(x):
    return torch.softmax(x - 3, 0)

def run(x):
    return (first if float(x.sum()) > 0 else second)(x)
"""),
)
