"""Symbolic Shape Exploit.

What happens: The tested shapes are right, the timed one is not.
Why it lies: The timed shape is the one that is reported.
What we do: Verified on exactly the timed shapes.
Limits: Shapes that are not timed are not verified.

Attacks: Right on the shapes that are tested, stale on the one that is timed.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=59, kind="B", undefended=Undefended(472, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("stale_on_the_timed_shape", MATMUL_RELU)("""
import torch

stale = torch.zeros(256, 256)

def run(x, w):
    return stale if tuple(x.shape) == (256, 256) else torch.relu(x @ w)
"""),
    honest("a_way_of_its_own_for_one_shape", MATMUL_RELU)("""
import torch

def run(x, w):
    if tuple(x.shape) == (256, 256):
        return torch.mm(x, w).clamp_(min=0)
    return torch.relu(x @ w)
"""),
)
