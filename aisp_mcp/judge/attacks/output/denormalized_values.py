"""Denormalized Values.

What happens: Subnormal numbers are flushed to zero.
Why it lies: Arithmetic is cheaper on some machines and results differ.
What we do: Inputs near the subnormal range in verification rounds.
Limits: Many formats of devices flush by contract; the baseline then does the same.

Attacks: Subnormal numbers flushed to zero.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import SUBNORMAL

ABOUT = Issue(id=16, kind="N", undefended=Undefended(5.76, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("subnormals_flushed", SUBNORMAL)(
        "import torch\n\ntorch.set_flush_denormal(True)\n\ndef run(x):\n    return (x * 0.5).cumsum(1)\n"
    ),
    honest("subnormals_kept", SUBNORMAL)("def run(x):\n    return (x / 2).cumsum(1)\n"),
)
