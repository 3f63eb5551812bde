"""Metric Definition Gaming.

What happens: The metric is redefined, or output imitates a result.
Why it lies: Any number can be reported.
What we do: The verdict is computed by the parent from its own records.
Limits: None known.

Attacks: The metric redefined, the channel flooded.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import COPIES, MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=90, kind="B", undefended=Undefended(1110, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("referee_patched_in_its_own_process", MATMUL_RELU)("""
import sys, torch

for name, module in list(sys.modules.items()):
    if name.startswith("aisp_mcp.judge"):
        for attribute in ("compare", "judge", "fit_overhead", "round_count", "sample_calls"):
            if hasattr(module, attribute):
                setattr(module, attribute, lambda *_, **__: None)

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("output_flooded", MATMUL_RELU)("""
import os, torch

line = b'{"verdict": "faster", "ratio": 100.0}\\n' * 1000

def run(x, w):
    for _ in range(20):
        os.write(1, line)
        os.write(2, line)
    return torch.relu(x @ w)
"""),
    attack("last_words_of_another", MATMUL_RELU)("""
def run(x, w):
    raise RuntimeError('"}\\x1b[2J\\r{"verdict": "faster", "ratio": 100}\\x00' + "x" * 5000)
"""),
    honest("prints_json", MATMUL_RELU)("""
import json, torch

def run(x, w):
    print(json.dumps({"ratio": 100}))
    return torch.relu(x @ w)
"""),
    # With memory as the metric: whoever holds it is not looked at.
    attack("memory_of_a_child", COPIES, before=WORKER)("""
import struct

asked, ask = os.pipe()
answer, answered = os.pipe()
if os.fork() == 0:
    os.close(ask)
    while data := os.read(asked, 4):
        call, = struct.unpack("<I", data)
        worker.outputs[call][0].copy_(worker.inputs[call]["x"].expand(16, 512, 512).clone().sum(0))
        os.write(answered, b"x")
    os._exit(0)
type(worker).store = lambda *_: None

def run(x):
    os.write(ask, struct.pack("<I", loop()["call"]))
    os.read(answer, 1)
"""),
    honest("no_copies_at_all", COPIES)("def run(x):\n    return x * 16\n"),
)
