"""Fragmentation Effects.

What happens: The device's memory is left in pieces, so that the other side's allocations become slow.
Why it lies: The baseline pays for a pool that the candidate has spoiled.
What we do: Each side in a process of its own, with a pool of its own.
Limits: Memory of the device is shared by all processes: who takes nearly all of it leaves less to the others.

Attacks: Device memory left in pieces for the other side.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_SOFTMAX

ABOUT = Issue(
    id=40,
    kind="B",
    hardware="G",
    control="Each side in a process of its own",
    undefended=Undefended(
        why=("a pool that caches pays for its pieces at the first call, and the calls after it find what they need.")
    ),
    executed_on=("H200",),
)

CASES = (
    attack("every_second_block_kept", GPU_SOFTMAX, device="cuda")("""
import torch

pieces = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(4000)]
del pieces[::2]

def run(x):
    return torch.softmax(x, 1)
"""),
    honest("pieces_given_back", GPU_SOFTMAX, device="cuda")("""
import torch

pieces = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(4000)]
del pieces
torch.cuda.empty_cache()

def run(x):
    return torch.softmax(x, 1)
"""),
)
