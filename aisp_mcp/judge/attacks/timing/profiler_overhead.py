"""Profiler Overhead.

What happens: A profiler or a trace is switched on to slow the other side down.
Why it lies: The baseline pays for instruments that the candidate does not need.
What we do: Each side in a process of its own.
Limits: Instruments that the user's own environment loads are on both sides.

Attacks: Instruments switched on to slow the other side.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU, RECURRENCE

ABOUT = Issue(id=7, kind="B", undefended=Undefended(1.33, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("trace_left_on_for_everybody", MATMUL_RELU)("""
import sys, threading, torch

sys.setprofile(lambda *_: None)
threading.setprofile(lambda *_: None)
torch.autograd.set_detect_anomaly(True)

def run(x, w):
    sys.setprofile(None)
    return torch.relu(x @ w)
"""),
    honest("ranges_named_for_a_profiler", MATMUL_RELU)("""
import torch

def run(x, w):
    with torch.profiler.record_function("product"):
        return torch.relu(x @ w)
"""),
    # On in everybody's calls but its own: a loop of many small steps pays for each of them.
    attack("profiler_off_in_its_own_calls", RECURRENCE)("""
import sys, torch

def watch(frame, *_):
    seen = []
    while frame:
        seen.append(frame.f_code.co_name)
        frame = frame.f_back

def run(x, b):
    sys.setprofile(None)
    for _ in range(100):
        x = torch.tanh(x * 0.9 + b)
    sys.setprofile(watch)
    return x
"""),
)
