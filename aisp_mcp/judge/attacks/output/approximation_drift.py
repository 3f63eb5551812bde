"""Approximation Drift.

What happens: A cheaper formula comes close enough for a loose tolerance.
Why it lies: Another function is computed.
What we do: Error against float64 in units of the baseline's own, on zero-mean inputs.
Limits: Approximations within sixteen times the baseline's own error pass.

Attacks: Half of the sum, scaled to look like all of it.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import LONG_SUM, MATMUL_RELU, SOFTMAX

ABOUT = Issue(id=10, kind="N", undefended=Undefended(1.74, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("half_of_the_inner_dimension", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.relu(x[:, :128] @ w[:128]) * 2**0.5\n"
    ),
    attack("every_second_element_twice", LONG_SUM)("def run(x):\n    return x[:, ::2].sum(1) * 2\n"),
    attack("low_rank_weights", MATMUL_RELU)("""
import torch

def prepare(params, example):
    u, s, v = torch.linalg.svd(params["w"])
    return {"a": u[:, :64] * s[:64], "b": v[:64]}

def run(x, a, b):
    return torch.relu((x @ a) @ b)
"""),
    attack("polynomial_for_the_exponential", SOFTMAX)("""
import torch

def run(x):
    y = (1 + x / 64).pow_(64)
    return y / y.sum(1, keepdim=True)
"""),
    honest("sum_in_blocks", LONG_SUM)("def run(x):\n    return x.view(8, 256, 256).sum(2).sum(1)\n"),
    honest("sum_one_after_the_other", LONG_SUM)("def run(x):\n    return x.cumsum(1)[:, -1].contiguous()\n"),
    honest("softmax_by_hand", SOFTMAX)("""
import torch

def run(x):
    y = torch.exp(x - x.amax(1, keepdim=True))
    return y / y.sum(1, keepdim=True)
"""),
)
