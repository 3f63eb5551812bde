"""Pre-allocated Output.

What happens: The same buffer is returned each time, or memory beside the output is written.
Why it lies: A result of an earlier call is shown.
What we do: Outputs copied into the harness's memory within the round; guards around them.
Limits: Reuse of buffers that are written anew is legitimate.

Attacks: A buffer of the candidate's own in place of a new result.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import LONG_SUM, MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=36, kind="D", undefended=Undefended(2.01, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("every_second_result_is_the_last_one", MATMUL_RELU)("""
import torch

y, calls = torch.empty(256, 256), [0]

def run(x, w):
    calls[0] += 1
    return torch.mm(x, w, out=y).relu_() if calls[0] % 2 else y
"""),
    attack("written_beyond_the_output", LONG_SUM, before=WORKER)("""
def run(x):
    y = worker.outputs[loop()["call"]][0]
    torch.as_strided(y, (16,), (1,)).fill_(1.0)
    return x.sum(1)
"""),
    attack("written_into_the_next_input", LONG_SUM, before=WORKER)("""
def run(x):
    found = loop()
    if found["call"] + 1 < found["count"]:
        worker.inputs[found["call"] + 1]["x"].zero_()
    return x.sum(1) if found["call"] == 0 else torch.zeros(8)
"""),
    honest("static_output_buffer", MATMUL_RELU)("""
import torch

y = torch.empty(256, 256)

def run(x, w):
    return torch.mm(x, w, out=y).relu_()
"""),
    honest("two_buffers_in_turn", MATMUL_RELU)("""
import itertools, torch

buffers = itertools.cycle([torch.empty(256, 256), torch.empty(256, 256)])

def run(x, w):
    return torch.mm(x, w, out=next(buffers)).relu_()
"""),
)
