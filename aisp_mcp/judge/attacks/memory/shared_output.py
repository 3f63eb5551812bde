"""Input Returned As Output.

What happens: An operation that makes a new tensor gives back (part of) its argument.
Why it lies: Users who change the result change the input; the copy is the work.
What we do: An output in the memory of an input is refused, unless the baseline's is, too, or the contract allows it.
Limits: The worker itself looks; a candidate that bends this needs the bytes elsewhere in rounds without copies.

Attacks: Results that are no memory of their own.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import COPY, spec

ABOUT = Issue(
    id=101,
    kind="D",
    control="Outputs in the memory of inputs are refused unless the contract allows it",
    undefended=Undefended(why="not measured yet."),
)

SHARED = spec("Every second row; the contract allows a view.")("""
shares_inputs = True

def inputs(self, rng):
    return {"x": rng.randn(1024, 512)}

def run(self, x):
    return x[::2].clone()
""")

CASES = (
    attack("identity_returns_its_argument", COPY)("def run(x):\n    return x\n"),
    attack("view_instead_of_a_copy", COPY)("def run(x):\n    return x.view(-1).view(x.shape)\n"),
    honest("view_by_contract", SHARED)("def run(x):\n    return x[::2]\n"),
    honest("copy_into_a_buffer", COPY)("import torch\n\ndef run(x):\n    return torch.empty_like(x).copy_(x)\n"),
)
