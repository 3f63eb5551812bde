"""Background Process Noise.

What happens: A neighbour works while the other side runs.
Why it lies: The baseline shares its core.
What we do: The whole tree is stopped outside its rounds.
Limits: Neighbours of other users are noise on both sides.

Attacks: Neighbours that work only for one side.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_LONG, MATMUL_RELU

ABOUT = Issue(id=87, kind="D", isolation="L2", undefended=Undefended(1.58, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("busy_child", MATMUL_LONG)("""
import os, subprocess, sys, torch

children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]

def run(x, w):
    for child in children:
        os.kill(child.pid, 19)
    y = torch.relu(x @ w)
    for child in children:
        os.kill(child.pid, 18)
    return y
"""),
    honest("a_child_that_has_ended", MATMUL_RELU)("""
import subprocess, sys, torch

subprocess.run([sys.executable, "-c", "pass"], check=True)

def run(x, w):
    return torch.relu(x @ w)
"""),
)
