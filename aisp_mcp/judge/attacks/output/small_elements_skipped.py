"""Small Elements Skipped.

What happens: A result holds elements of very different sizes, and all but the large ones are zero.
Why it lies: Errors are measured in units of the largest element of a row, and a vector is one row.
What we do: At most a twentieth of the elements may be wrong in units of their size, by the baseline's own errors.
Limits: Up to a twentieth of the elements, and up to sixteen of a small output, which sums that cancel may need.

Attacks: Elements left out that are small against the largest.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import spec

ABOUT = Issue(
    id=97,
    kind="N",
    control="Elements compared in units of their own size, by the baseline's errors of that size",
    undefended=Undefended(why="not measured yet."),
)

LONG_TAIL = spec("A vector whose elements differ by many orders of magnitude.")("""
def inputs(self, rng):
    return {"x": rng.rand(1 << 17, scale=1.0)}

def run(self, x):
    return torch.exp(40 * x) * (1.5 + torch.sin(x)) * (1.5 + torch.cos(x)) * (1 + torch.sigmoid(x))
""")

CASES = (
    attack("large_elements_alone", LONG_TAIL)("""
import torch

def run(x):
    out = torch.zeros_like(x)
    index = (x > x.max() - 0.36).nonzero().flatten()
    y = x[index]
    out[index] = torch.exp(40 * y) * (1.5 + torch.sin(y)) * (1.5 + torch.cos(y)) * (1 + torch.sigmoid(y))
    return out
"""),
    honest("every_element", LONG_TAIL)("""
import torch

def run(x):
    rest = (1.5 + torch.cos(x)) * (1 + torch.sigmoid(x)) * (1.5 + torch.sin(x))
    return torch.exp(20 * x) * torch.exp(20 * x) * rest
"""),
)
