"""Precision Mismatch.

What happens: Products are computed in a narrower format.
Why it lies: Another accuracy is bought with speed.
What we do: Error against float64 in units of the baseline's own.
Limits: Narrow formats hidden by large errors of the baseline's own pass.

Attacks: Products in a narrower format than declared.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_DOUBLE, MATMUL_RELU

ABOUT = Issue(id=18, kind="N", undefended=Undefended(1.32, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("product_in_bfloat16", MATMUL_RELU)("""
import torch

def run(x, w):
    return torch.relu((x.bfloat16() @ w.bfloat16()).float())
"""),
    attack("product_in_half_precision", MATMUL_RELU)("""
import torch

def run(x, w):
    return torch.relu((x.half() @ w.half()).float())
"""),
    attack("weights_in_eight_bits", MATMUL_RELU)("""
import torch

def prepare(params, example):
    scale = params["w"].abs().amax() / 127
    return {"w": (params["w"] / scale).round().clamp(-127, 127) * scale}

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("double_product_in_single_precision", MATMUL_DOUBLE)("""
def run(x, y):
    return (x.float() @ y.float()).double()
"""),
    honest("double_product_in_halves", MATMUL_DOUBLE)("""
import torch

def run(x, y):
    return torch.cat([x[:128] @ y, x[128:] @ y])
"""),
    honest("split_into_high_and_low_parts", MATMUL_RELU)("""
import torch

def prepare(params, example):
    high = params["w"].bfloat16().float()
    return {"high": high, "low": params["w"] - high}

def run(x, high, low):
    return torch.relu(x @ high + x @ low)
"""),
)
