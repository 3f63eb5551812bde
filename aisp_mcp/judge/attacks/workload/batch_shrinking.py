"""Batch Shrinking.

What happens: Half of the batch is computed and shown twice.
Why it lies: Half of the work is missing.
What we do: Every row distinct, every element compared.
Limits: None known.

Attacks: Half of the batch, shown twice.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=22, kind="B", undefended=Undefended(1.9, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("half_of_the_rows_twice", MATMUL_RELU)("""
import torch

def run(x, w):
    y = torch.relu(x[:128] @ w)
    return torch.cat([y, y])
"""),
    honest("two_halves_of_the_rows", MATMUL_RELU)("""
import torch

def run(x, w):
    return torch.cat([torch.relu(x[:128] @ w), torch.relu(x[128:] @ w)])
"""),
)
