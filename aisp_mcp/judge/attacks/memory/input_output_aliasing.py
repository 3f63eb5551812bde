"""Input-Output Aliasing.

What happens: The input is overwritten or handed back.
Why it lies: Allocation and copies are saved at the caller's cost.
What we do: Inputs compared with what was sent.
Limits: Inputs are compared in the sampled calls; on a GPU, where the candidate works on copies, in the last of a round.

Attacks: The input overwritten, or handed back.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import IN_PLACE, MATMUL_RELU, RELU

ABOUT = Issue(id=37, kind="D", undefended=Undefended(213, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("result_in_the_input", RELU)("""
def run(x):
    return x.relu_()
"""),
    attack("input_as_scratch", MATMUL_RELU)("""
import torch

def run(x, w):
    y = torch.relu(x @ w)
    x.zero_()
    return y
"""),
    attack("input_handed_back", RELU)("""
def run(x):
    return x
"""),
    honest("in_place_by_contract", IN_PLACE)("""
def run(x):
    return x.clamp_min_(0).div_(2)
"""),
    honest("input_left_alone_though_it_may_change", IN_PLACE)("""
import torch

def run(x):
    return torch.relu(x) * 0.5
"""),
)
