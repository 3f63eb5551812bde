"""Recycled Draws.

What happens: A random output comes from a pool of masks that is rolled, or repeats one draw inside a tensor.
Why it lies: Its distribution is right, but most of the random numbers were never drawn.
What we do: Draws are correlated with themselves and with earlier ones at all lags, and searched for equal stretches.
Limits: A pool so large that none of its parts returns within 64 calls that are compared.

Attacks: Random numbers used more than once.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import spec

ABOUT = Issue(
    id=98,
    kind="N",
    control="Correlation at all lags within and between draws; search for equal stretches",
    undefended=Undefended(why="not measured yet."),
)

DROPOUT = spec("Dropout of a quarter.")("""
tolerance = Tolerance(stochastic=True)

def inputs(self, rng):
    return {"x": rng.randn(256, 512)}

def run(self, x):
    return F.dropout(x, 0.25)

def reference(self, x):
    return x
""")

CASES = (
    attack("rolled_masks_of_a_pool", DROPOUT)("""
import random, torch

pool = [((torch.rand(1 << 18) < 0.75) / 0.75) for _ in range(16)]

def run(x):
    begin = random.randrange(1 << 17)
    return x * random.choice(pool)[begin : begin + x.numel()].view(x.shape)
"""),
    attack("one_draw_four_times", DROPOUT)("""
import torch

def run(x):
    mask = torch.rand(x.shape[0] // 4, x.shape[1]).lt_(0.75).div_(0.75)
    return (x.view(4, -1, x.shape[1]) * mask).view(x.shape)
"""),
    honest("a_mask_of_its_own_for_each_call", DROPOUT)(
        "import torch\n\ndef run(x):\n    return x * torch.rand_like(x).lt_(0.75).div_(0.75)\n"
    ),
)
