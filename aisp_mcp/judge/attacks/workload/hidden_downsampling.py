"""Hidden Downsampling.

What happens: The picture is made smaller first.
Why it lies: A quarter of the work remains.
What we do: White noise as input.
Limits: None known.

Attacks: A picture made smaller, worked on, and made larger again.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import CONV

ABOUT = Issue(id=24, kind="N", undefended=Undefended(1.4, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("convolution_at_half_size", CONV)("""
import torch.nn.functional as F

def run(x, w):
    y = F.conv2d(x[:, :, ::2, ::2], w, padding=1)
    return y[..., None].expand(*y.shape, 2).flatten(-2).repeat_interleave(2, 2)
"""),
    honest("convolution_as_a_product", CONV)("""
import torch.nn.functional as F

def run(x, w):
    return (w.view(32, 288) @ F.unfold(x, 3, padding=1)).view(1, 32, 64, 64)
"""),
)
