"""Memory Pool Reuse.

What happens: The allocator's cache is emptied for the other side.
Why it lies: The baseline pays for allocations.
What we do: Each side in a process of its own.
Limits: Memory of the device is shared by all processes.

Attacks: Allocations made dear for somebody else.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_SOFTMAX

ABOUT = Issue(id=39, kind="D", hardware="G", undefended=Undefended(4.65, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("pool_emptied_every_call", GPU_SOFTMAX, device="cuda")("""
import torch

def run(x):
    y = torch.softmax(x, 1)
    torch.cuda.empty_cache()
    return y
"""),
    # The other side asks the driver for memory in each of its calls; this one has what it needs.
    attack("pool_switched_off_for_everybody", GPU_SOFTMAX, device="cuda")("""
import torch

y = torch.empty(4096, 2048, device="cuda")
torch.cuda.caching_allocator_enable(False)

def run(x):
    return torch.softmax(x, 1, out=y)
"""),
    honest("static_output_on_the_device", GPU_SOFTMAX, device="cuda")("""
import torch

y = torch.empty(4096, 2048, device="cuda")

def run(x):
    return torch.softmax(x, 1, out=y)
"""),
)
