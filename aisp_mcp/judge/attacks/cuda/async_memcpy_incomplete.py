"""Async Memcpy Incomplete.

What happens: A copy between buffers is still under way at the return.
Why it lies: Its time is not counted.
What we do: Poisoned outputs; snapshot right behind the answer.
Limits: None known.

Attacks: A copy on the device that is still under way.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_CHAIN, GPU_COPY, GPU_SOFTMAX
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=44, kind="B", hardware="G", undefended=Undefended(2.34, "one process", "H200"), executed_on=("H200",))

# What the copies of inputs and outputs cost is subtracted from every round. This one reads and writes the harness's
# memory where it lies, and its clock says that the copies were made.
_DEVICE_COPIES_SPARED = (
    WORKER
    + """
elapsed, cost, buffer = torch.cuda.Event.elapsed_time, [], torch.empty(4096, 2048, device="cuda")
refresh, store = type(worker).refresh, type(worker).store

def learn():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        begin.record()
        for call in range(10):
            refresh(worker.local, worker.inputs[call])
            buffer.copy_(worker.local["x"])
        end.record()
        end.synchronize()
    cost.append(elapsed(begin, end) / 10)

def fake(begin, end):
    seen = elapsed(begin, end)
    return max(seen - cost[0], seen / 4)

def chain(x, out=None):
    return torch.softmax(torch.tanh(torch.nn.functional.gelu(x) + 1), 1, out=out)

def run(x):
    if not cost:
        learn()
    found = loop()
    if found.get("no_copy"):
        return honestly(x)
    return chain(worker.inputs[found["call"]]["x"], worker.outputs[found["call"]][0])

def kept(self, call, output):
    if output.data_ptr() != self.outputs[call][0].data_ptr():
        store(self, call, output)

type(worker).refresh, type(worker).store = staticmethod(lambda *_: None), kept
torch.cuda.Event.elapsed_time = fake
"""
)

CASES = (
    attack("copy_on_another_stream", GPU_COPY, device="cuda")("""
import torch

side = torch.cuda.Stream()

def run(x):
    y = torch.empty_like(x)
    with torch.cuda.stream(side):
        y.copy_(x, non_blocking=True)
    return y
"""),
    honest("copy_on_another_stream_waited_for", GPU_SOFTMAX, device="cuda")("""
import torch

side = torch.cuda.Stream()

def run(x):
    main, y, z = torch.cuda.current_stream(), torch.empty_like(x), torch.softmax(x, 1)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y.copy_(z, non_blocking=True)
    main.wait_stream(side)
    return y
"""),
    attack("copies_on_the_device_spared", GPU_CHAIN, before=_DEVICE_COPIES_SPARED, device="cuda")("""
honestly = chain
"""),
    attack("device_copies_spared_behind_a_buffer", GPU_CHAIN, before=_DEVICE_COPIES_SPARED, device="cuda")("""
def honestly(x):
    return chain(x, buffer)
"""),
    honest("chain_into_one_buffer", GPU_CHAIN, device="cuda")("""
import torch

buffer = torch.empty(4096, 2048, device="cuda")

def run(x):
    return torch.softmax(torch.tanh(torch.nn.functional.gelu(x) + 1), 1, out=buffer)
"""),
)
