"""Pipeline Bubble Hiding.

What happens: Only the steady state of a pipeline is timed, not its filling and draining.
Why it lies: Every batch pays for both.
What we do: The parent's clock around whole rounds; a round begins and ends with an empty pipeline.
Limits: Up to the tolerated disagreement the own clock may err.

Attacks: The filling and draining of a pipeline left out of its time.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import PIPELINE

ABOUT = Issue(
    id=66,
    kind="B",
    control="Time of the whole call",
    undefended=Undefended(1.97, "one process", "cpu"),
    executed_on=("cpu",),
)

CASES = (
    attack("steady_state_only", PIPELINE)("""
import time, torch

real, hidden = time.perf_counter_ns, [0]
time.perf_counter_ns = lambda: real() - hidden[0]

def run(x, first, second):
    parts = []
    for number, part in enumerate(x):
        begin = real()
        parts.append(torch.relu(part @ first) @ second)
        if number in (0, 1, 6, 7):
            hidden[0] += real() - begin
    return torch.stack(parts)
"""),
    honest("all_parts_at_once", PIPELINE)(
        "import torch\n\ndef run(x, first, second):\n    return torch.relu(x @ first) @ second\n"
    ),
)
