"""Device Mismatch.

What happens: The work is done on another, faster or idle device.
Why it lies: The device that is named in the result did not do it.
What we do: One visible device per worker, whose node alone can be opened; the exact device of outputs.
Limits: At level L1 a device that is reached through a child process is seen as a child alone.

Attacks: Another device than the one that was declared. Needs two.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL

ABOUT = Issue(
    id=68,
    kind="D",
    hardware="M",
    isolation="L2",
    control="One visible device per worker, and no other node that can be opened",
    undefended=Undefended(
        why=(
            "the inputs lie on the declared device, whose stream copies them to the other one: by its events"
            " the calls take as long or longer."
        )
    ),
    executed_on=("2xH200",),
)

CASES = (
    attack("another_device_selected", GPU_MATMUL, device="cuda", needs=("two devices",))("""
import os, torch

os.environ["CUDA_VISIBLE_DEVICES"] = "1"
torch.cuda.set_device(1)

def run(x, w):
    return torch.relu(x.to("cuda:1") @ w.to("cuda:1"))
"""),
    # Events lie on the declared device; another one works, and they see nothing of it.
    attack("work_on_a_device_without_events", GPU_MATMUL, device="cuda", needs=("two devices",))("""
import torch

others = torch.cuda.device_count() > 1

def run(x, w):
    if not others:
        return torch.relu(x @ w)
    with torch.cuda.device(1):
        return torch.relu(x.to("cuda:1", non_blocking=True) @ w.to("cuda:1", non_blocking=True))
"""),
    honest("the_declared_device_by_name", GPU_MATMUL, device="cuda", needs=("two devices",))("""
import torch

def run(x, w):
    with torch.cuda.device(0):
        return torch.relu(x.to("cuda:0") @ w)
"""),
)
