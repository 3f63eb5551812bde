"""Sparsity Mismatch.

What happens: Small weights are taken for zero.
Why it lies: Sparse work is less work.
What we do: Weights come anew with each replicate; errors show pruning.
Limits: Pruning that stays within the tolerance passes.

Attacks: Small weights taken for zero.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=25, kind="B", undefended=Undefended(1.51, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("weights_pruned_in_prepare", MATMUL_RELU)("""
import torch

def prepare(params, example):
    w = params["w"].clone()
    w[w.abs() < 0.01] = 0
    return {"w": w}

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("smaller_half_of_the_rows_pruned", MATMUL_RELU)("""
import torch

def prepare(params, example):
    kept = params["w"].norm(dim=1).topk(128).indices
    return {"w": params["w"][kept], "kept": kept}

def run(x, w, kept):
    return torch.relu(x.index_select(1, kept) @ w)
"""),
    attack("weights_pruned_where_they_lie", MATMUL_RELU)("""
import torch

def run(x, w):
    w[w.abs() < w.abs().median()] = 0
    return torch.relu(x @ w)
"""),
    honest("zeros_that_are_there_left_out", MATMUL_RELU)("""
import torch

def prepare(params, example):
    return {"w": params["w"], "used": params["w"].abs().sum(1).nonzero().squeeze(1)}

def run(x, w, used):
    return torch.relu(x[:, used] @ w[used])
"""),
)
