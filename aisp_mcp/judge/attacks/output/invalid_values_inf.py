"""Invalid Values (Inf).

What happens: Infinities are returned, which make relative tolerances infinite.
Why it lies: Nothing has been computed.
What we do: Non-finite elements must stand where the baseline's stand.
Limits: Elements where the baseline itself overflows are not compared.

Attacks: Infinities, which make every tolerance infinite.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import ATTENTION, MATMUL_RELU

ABOUT = Issue(id=12, kind="N", undefended=Undefended(32.8, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("all_infinite", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.full((256, 256), float('inf'))\n"
    ),
    honest("infinities_inside_the_mask", ATTENTION)("""
import torch

def run(q, k, v, mask):
    bias = torch.zeros(128, 128).masked_fill_(~mask, float("-inf"))
    return torch.softmax(torch.baddbmm(bias, q[0], k[0].transpose(1, 2), alpha=32**-0.5), -1)[None] @ v
"""),
)
