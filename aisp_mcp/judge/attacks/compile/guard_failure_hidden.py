"""Guard Failure Hidden.

What happens: Compilation is moved to where it is not counted.
Why it lies: Users pay for it.
What we do: Every call of a round is in the parent's interval.
Limits: Compilation in warm-up is on both sides and reported apart.

Attacks: Compilation that happens where it is not counted.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import SOFTMAX

ABOUT = Issue(id=57, kind="D", undefended=Undefended(3.5, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("compiled_anew_for_each_input", SOFTMAX)("""
import torch

def run(x):
    space = {"torch": torch}
    exec("def f(x): return torch.softmax(x, 1)", space)
    return space["f"](x) if float(x[0, 0]) > 0 else torch.full_like(x, 1 / 1024)
"""),
    honest("compiled_by_torch", SOFTMAX, needs=("torch.compile",), slow=True)("""
import torch

@torch.compile
def run(x):
    y = torch.exp(x - x.amax(1, keepdim=True))
    return y / y.sum(1, keepdim=True)
"""),
    honest("compiled_anew_for_a_new_shape", SOFTMAX, needs=("torch.compile",), slow=True)("""
import torch

calls = [0]
compiled = torch.compile(lambda x: torch.softmax(x, 1), dynamic=False)

def run(x):
    calls[0] += 1
    return compiled(x) if calls[0] % 2 else torch.cat([compiled(x[:128]), compiled(x[128:])])
"""),
)
