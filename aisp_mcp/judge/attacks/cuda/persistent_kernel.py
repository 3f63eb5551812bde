"""Persistent Kernel.

What happens: Kernels queued or resident on the device work while the process stands still.
Why it lies: Their work is free.
What we do: Poison and inputs are written while the process is stopped.
Limits: Without an idle check of the device such work is not stopped.

Attacks: The device goes on working for a process that stands still.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=46, kind="D", hardware="G", undefended=Undefended(12.4, "own word", "H200"), executed_on=("H200",))

CASES = (
    # Behind the last call of a round lie dozens of passes over all inputs; one of them meets the next round's.
    attack("work_queued_for_the_next_round", GPU_MATMUL, before=WORKER, device="cuda")("""
side = torch.cuda.Stream()
w = worker.arena.params()["w"].clone()
store = type(worker).store

def ahead(count):
    with torch.cuda.stream(side):
        for _ in range(20):
            torch.cuda._sleep(4_000_000)
            for call in range(min(count + 3, len(worker.inputs))):
                worker.outputs[call][0].copy_(torch.relu(worker.inputs[call]["x"] @ w))

def stored(self, call, output):
    if output is not None:
        store(self, call, output)

def run(x, w):
    frame = sys._getframe(1)
    while "count" not in frame.f_locals:
        frame = frame.f_back
    call, count = frame.f_locals["call"], frame.f_locals["count"]
    y = torch.relu(x @ w) if pending(call) else None
    if call == count - 1:
        ahead(count)
    return y

type(worker).store = stored
torch.cuda.synchronize = lambda *_: worker.stream.synchronize()
"""),
    honest("one_launch_for_many_parts", GPU_MATMUL, device="cuda")("""
import torch

def run(x, w):
    return torch.relu(torch.bmm(x.view(8, 256, 2048), w.expand(8, 2048, 2048))).view(2048, 2048)
"""),
)
