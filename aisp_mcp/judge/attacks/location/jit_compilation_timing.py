"""JIT Compilation Timing.

What happens: One side is compiled before the clock starts, the other while it runs.
Why it lies: The baseline's first call is compared with the candidate's hundredth.
What we do: Both sides are warmed up alike, in processes of their own; the cost of preparing is reported apart.
Limits: What compiles again at a call far into the run is part of that call.

Attacks: Compilation moved to where only the other side pays for it.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import SCRIPTED

ABOUT = Issue(
    id=35,
    kind="D",
    control="Both sides warmed alike; first call reported apart",
    undefended=Undefended(2490, "cold calls", "cpu"),
    executed_on=("cpu",),
)

CASES = (
    attack("compiled_at_import", SCRIPTED)("""
import torch

compiled = torch.jit.trace(lambda x: torch.softmax(x * 2 + 1, 1), (torch.ones(256, 256),))
for _ in range(20):
    compiled(torch.ones(256, 256))

def run(x):
    return compiled(x)
"""),
    honest("not_compiled_at_all", SCRIPTED)("import torch\n\ndef run(x):\n    return torch.softmax(x * 2 + 1, 1)\n"),
)
