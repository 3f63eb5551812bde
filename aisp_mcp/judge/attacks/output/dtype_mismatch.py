"""Dtype Mismatch.

What happens: The result has a narrower type than promised.
Why it lies: Less memory is written and less is computed.
What we do: Type compared before values; bytes read in the declared type.
Limits: Narrow arithmetic inside is an error, not a type: see precision mismatch.

Attacks: Results in a narrower type than promised.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_DOUBLE, MATMUL_RELU

ABOUT = Issue(id=15, kind="D", undefended=Undefended(1.23, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("result_in_half_precision", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.relu(x @ w).half()\n"
    ),
    attack("result_in_single_precision", MATMUL_DOUBLE)("def run(x, y):\n    return x.float() @ y.float()\n"),
    honest("wider_inside", MATMUL_RELU)(
        "import torch\n\ndef run(x, w):\n    return torch.relu(x.double() @ w.double()).float()\n"
    ),
)
