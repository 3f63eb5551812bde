"""Page Fault Timing.

What happens: One side pays for new pages, the other does not.
Why it lies: The kernel's work is taken for the program's.
What we do: Arenas mapped and touched before the run; faults counted by the kernel.
Limits: Allocations inside a call are part of the call.

Attacks: Memory taken anew on one side and kept on the other.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU, RELU

ABOUT = Issue(id=41, kind="D", undefended=Undefended(8.38, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("pages_dropped_for_nobody", MATMUL_RELU)("""
import ctypes, torch

libc = ctypes.CDLL(None)

def run(x, w):
    y = torch.relu(x @ w)
    libc.malloc_trim(0)
    return y
"""),
    # From now on free memory goes back to the kernel at once: the other side touches new pages in each of its calls.
    attack("pages_taken_from_everybody_else", RELU)("""
import ctypes, torch

y = torch.empty(512, 512)
libc = ctypes.CDLL(None)
libc.mallopt(-3, 1 << 16)
libc.mallopt(-1, 1 << 16)

def run(x):
    return torch.clamp_min(x, 0, out=y)
"""),
    honest("scratch_touched_beforehand", MATMUL_RELU)("""
import torch

scratch = torch.zeros(1 << 20)

def run(x, w):
    y = scratch[: 256 * 256].view(256, 256)
    return torch.mm(x, w, out=y).relu_()
"""),
)
