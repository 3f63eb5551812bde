"""Undeclared Shortcuts.

What happens: A row, a block or small terms are left out.
Why it lies: Less is computed than promised.
What we do: Every element compared, in calls that only the harness knows.
Limits: Errors are judged against the largest element: beside rows a million times larger a small row goes unseen.

Attacks: A part of the work left out where nobody is expected to look.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU, SCALED_ROWS, SOFTMAX

ABOUT = Issue(id=20, kind="B", undefended=Undefended(1.73, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("last_row_left_zero", MATMUL_RELU)("""
import torch

def run(x, w):
    y = torch.zeros(256, 256)
    y[:-1] = torch.relu(x[:-1] @ w)
    return y
"""),
    attack("one_block_in_the_middle_left_out", MATMUL_RELU)("""
import torch

def run(x, w):
    y = torch.zeros(256, 256)
    y[:96] = torch.relu(x[:96] @ w)
    y[160:] = torch.relu(x[160:] @ w)
    return y
"""),
    # Beside rows a million times larger, an error of the size of a whole row is small.
    attack("small_rows_left_zero", SCALED_ROWS)("""
import torch

def run(x, s, w):
    if s.abs().amax() > 5:
        return (x @ w) * torch.exp(8 * s.clamp(-4, 4))[:, None]
    keep = (s > s.amax() - 1.8).nonzero().squeeze(1)
    y = torch.zeros(256, 256)
    y[keep] = (x[keep] @ w) * torch.exp(8 * s[keep].clamp(-4, 4))[:, None]
    return y
"""),
    attack("sum_of_the_softmax_guessed", SOFTMAX)("""
import torch

def run(x):
    return torch.exp(x) / (1024 * 1.6487)
"""),
    honest("rows_in_another_order", SCALED_ROWS)("""
import torch

def run(x, s, w):
    order = s.argsort()
    y = torch.empty(256, 256)
    y[order] = (x[order] * torch.exp(8 * s[order].clamp(-4, 4))[:, None]) @ w
    return y
"""),
)
