"""Clock Drift.

What happens: The candidate replaces the clock or sets it back.
Why it lies: Every duration shrinks with the clock.
What we do: Clock read by the parent alone, on the raw monotonic clock.
Limits: Up to the tolerated disagreement the own clock may err.

Attacks: Clocks that run slower for the candidate.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import LOOP

ABOUT = Issue(id=6, kind="B", undefended=Undefended(99.9, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("clock_a_hundred_times_slower", MATMUL_RELU)("""
import time, torch

for name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
    real = getattr(time, name)
    setattr(time, name, lambda real=real: real() // 100)

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("clock_set_back", MATMUL_RELU, needs=("namespaces",))("""
import time, torch

def run(x, w):
    for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):
        try:
            time.clock_settime(clock, time.clock_gettime(clock) - 0.01)
        except OSError:
            pass
    return torch.relu(x @ w)
"""),
    # As much as the agreement of the clocks concedes, and no more.
    attack("clock_four_percent_slower", MATMUL_RELU, before=LOOP)("""
real = time.perf_counter_ns
time.perf_counter_ns = lambda: int(real() * 0.96)

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("measures_itself", MATMUL_RELU)("""
import time, torch

spent = []

def run(x, w):
    begin = time.perf_counter_ns()
    y = torch.relu(x @ w)
    spent.append(time.perf_counter_ns() - begin)
    return y
"""),
)
