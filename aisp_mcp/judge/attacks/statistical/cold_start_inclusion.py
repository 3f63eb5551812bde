"""Cold Start Inclusion.

What happens: The first, cold calls count for one side and not for the other.
Why it lies: The difference is that of warmth.
What we do: The same warm-up rounds for both sides, planned by the parent.
Limits: None known.

Attacks: A warm candidate beside a cold baseline.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(
    id=85,
    kind="B",
    control="Same protocol for both sides",
    undefended=Undefended(2.67, "cold calls", "cpu"),
    executed_on=("cpu",),
)

CASES = (
    attack("warms_itself_up_in_prepare", MATMUL_RELU)("""
import torch

def prepare(params, example):
    for _ in range(300):
        torch.relu(example["x"] @ params["w"])
    return params

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("checks_its_result_in_prepare", MATMUL_RELU)("""
import torch

def prepare(params, example):
    assert torch.relu(example["x"] @ params["w"]).min() >= 0
    return params

def run(x, w):
    return torch.relu(x @ w)
"""),
)
