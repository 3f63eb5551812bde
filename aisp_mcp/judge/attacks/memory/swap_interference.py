"""Swap Interference.

What happens: Memory is filled while the other side runs.
Why it lies: The baseline waits for the disk.
What we do: Processes stopped outside their rounds; major faults flagged.
Limits: No limit of memory is set below a control group.

Attacks: Memory filled while the other side runs.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(
    id=42,
    kind="D",
    undefended=Undefended(why="memory that others fill slows a call only where the machine swaps."),
    executed_on=("cpu",),
)

CASES = (
    attack("memory_filled_by_an_orphan", MATMUL_RELU, needs=("namespaces",))("""
import os, torch

if os.fork():
    os.wait()
elif os.fork():
    os._exit(0)
else:
    hog = bytearray(64 << 20)
    while True:
        for i in range(0, len(hog), 4096):
            hog[i] ^= 1

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("memory_until_it_ends", MATMUL_RELU)("""
import mmap, resource

hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (16 << 30 if hard == resource.RLIM_INFINITY else hard, hard))

def run(x, w):
    kept = []
    while True:
        kept.append(mmap.mmap(-1, 1 << 32))
"""),
    honest("a_large_table_of_its_own", MATMUL_RELU)("""
import torch

table = torch.arange(1 << 22)

def run(x, w):
    return torch.relu(x @ w)
"""),
)
