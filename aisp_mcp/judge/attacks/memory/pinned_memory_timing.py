"""Pinned Memory Timing.

What happens: A copy to pinned memory is not waited for.
Why it lies: The transfer is behind the end of the call.
What we do: Exact device of outputs; synchronisation inside the parent's interval.
Limits: None known.

Attacks: Copies to the host that are not waited for.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_OFFLOAD, GPU_SOFTMAX

ABOUT = Issue(id=38, kind="B", hardware="G", undefended=Undefended(1.79, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("read_before_the_copy_is_there", GPU_OFFLOAD, device="cuda")("""
import torch

host, side = torch.empty(2048, 2048, pin_memory=True), torch.cuda.Stream()

def run(x):
    y = host.to(x.device, non_blocking=True)
    with torch.cuda.stream(side):
        host.copy_(x, non_blocking=True)
    return y
"""),
    honest("two_streams_in_order", GPU_OFFLOAD, device="cuda")("""
import torch

host, side = torch.empty(2048, 2048, pin_memory=True), torch.cuda.Stream()

def run(x):
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        host.copy_(x, non_blocking=True)
    main.wait_stream(side)
    return host.to(x.device, non_blocking=True)
"""),
    attack("result_left_on_the_host", GPU_SOFTMAX, device="cuda")("""
import torch

host = torch.empty(4096, 2048, pin_memory=True)

def run(x):
    host.copy_(torch.softmax(x, 1), non_blocking=True)
    return host
"""),
    honest("copy_to_the_host_waited_for", GPU_SOFTMAX, device="cuda")("""
import torch

host, event = torch.empty(4096, 2048, pin_memory=True), torch.cuda.Event()

def run(x):
    host.copy_(torch.softmax(x, 1), non_blocking=True)
    event.record()
    event.synchronize()
    return host.cuda()
"""),
)
