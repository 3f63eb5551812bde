"""Backend Precision Policy Drift.

What happens: A narrower format is switched on for the length of a call only.
Why it lies: Settings look right before and after.
What we do: Error against float64 in units of the baseline's own.
Limits: Narrow formats within sixteen times the baseline's own error pass.

Attacks: A narrower format switched on for the length of a call.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL

ABOUT = Issue(id=19, kind="N", hardware="G", undefended=Undefended(4.31, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("tf32_for_one_call", GPU_MATMUL, device="cuda")("""
import torch

def run(x, w):
    torch.backends.cuda.matmul.allow_tf32 = True
    y = torch.relu(x @ w)
    torch.backends.cuda.matmul.allow_tf32 = False
    return y
"""),
    attack("bfloat16_on_the_device", GPU_MATMUL, device="cuda")("""
import torch

def run(x, w):
    return torch.relu((x.bfloat16() @ w.bfloat16()).float())
"""),
    honest("three_products_in_tf32", GPU_MATMUL, device="cuda")("""
import torch

def split(a):
    high = (a.view(torch.int32) & -8192).view(torch.float32)
    return high, a - high

def run(x, w):
    torch.backends.cuda.matmul.allow_tf32 = True
    xh, xl = split(x)
    wh, wl = split(w)
    return torch.relu(xl @ wh + xh @ wl + xh @ wh)
"""),
)
