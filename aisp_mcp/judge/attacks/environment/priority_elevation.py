"""Priority Elevation.

What happens: The process raises its own priority.
Why it lies: It gets more of the machine than the other side.
What we do: No capabilities from level L2 on.
Limits: At level L1 root keeps its rights.

Attacks: More of the machine by rank.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(
    id=70,
    kind="D",
    isolation="L2",
    undefended=Undefended(why="a higher priority pays on a loaded machine alone, and is refused without privileges."),
    executed_on=("cpu",),
)

CASES = (
    attack("highest_priority", MATMUL_RELU, needs=("namespaces",))("""
import os, torch

for attempt in (
    lambda: os.nice(-15),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)),
    lambda: os.setpriority(os.PRIO_PGRP, os.getppid(), 19),
):
    try:
        attempt()
    except OSError:
        pass

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("lower_priority", MATMUL_RELU)("""
import os, torch

os.nice(1)

def run(x, w):
    return torch.relu(x @ w)
"""),
)
