"""Workspace Pre-compute.

What happens: Results lie ready in a workspace.
Why it lies: Timed calls do no work.
What we do: Inputs unknown in preparation; timed calls verified.
Limits: None known.

Attacks: Results kept in a workspace.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL

ABOUT = Issue(id=45, kind="B", hardware="G", undefended=Undefended(4.38, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("tiles_of_the_first_call", GPU_MATMUL, device="cuda")("""
import torch

tiles = []

def run(x, w):
    if not tiles:
        tiles.extend(torch.relu(part @ w) for part in x.chunk(8))
    return torch.cat([torch.relu(x[:256] @ w), *tiles[1:]])
"""),
    honest("scratch_kept_between_calls", GPU_MATMUL, device="cuda")("""
import torch

scratch = torch.empty(2048, 2048, device="cuda")

def run(x, w):
    torch.mm(x, w, out=scratch)
    return torch.relu(scratch)
"""),
)
