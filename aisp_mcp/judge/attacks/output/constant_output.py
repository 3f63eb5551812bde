"""Constant Output.

What happens: The same tensor is returned whatever the input.
Why it lies: No work depends on the question.
What we do: Degenerate problems refused; outputs verified.
Limits: A specification whose output hardly depends on its inputs is not found out.

Attacks: The same answer whatever is asked.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=8, kind="B", undefended=Undefended(33.1, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("all_zeros", MATMUL_RELU)("import torch\n\ndef run(x, w):\n    return torch.zeros(256, 256)\n"),
    honest("clipped_by_multiplication", MATMUL_RELU)("def run(x, w):\n    y = x @ w\n    return y * (y > 0)\n"),
)
