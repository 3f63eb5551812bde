"""Invalid Values (NaN).

What happens: NaN is returned, which careless comparisons take for close.
Why it lies: Nothing has been computed.
What we do: Non-finite elements must stand where the baseline's stand.
Limits: Where the contract allows NaN, unwritten elements are found in the compared calls only.

Attacks: NaN, which a careless comparison takes for close.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import LOG, MATMUL_RELU

ABOUT = Issue(id=11, kind="N", undefended=Undefended(216, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("all_nan", MATMUL_RELU)("import torch\n\ndef run(x, w):\n    return torch.full((256, 256), float('nan'))\n"),
    attack("nan_where_some_are_allowed", LOG)(
        "import torch\n\ndef run(x):\n    return torch.full_like(x, float('nan'))\n"
    ),
    honest("nan_by_contract", LOG)("""
import torch

def run(x):
    x = torch.where(x.abs() > 0.1, x.clamp_min(-1), torch.zeros(()))
    return torch.log2(x) * 0.6931471805599453
"""),
)
