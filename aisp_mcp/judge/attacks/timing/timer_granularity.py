"""Timer Granularity.

What happens: The clock is made coarse, or a minimum is taken over quantised samples.
Why it lies: The quickest sample is the clock's tick, not the call.
What we do: Rounds long against the parent's clock; own clock believed only near it.
Limits: Of calls as short as the loop around them the parent's clock knows little, and a gain counts as far as it does.

Attacks: A clock made coarse, so that most calls last no time at all.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU, TINY
from aisp_mcp.judge.attacks.snippets import LOOP

ABOUT = Issue(id=4, kind="D", undefended=Undefended(205000000.0, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("clock_of_whole_milliseconds", MATMUL_RELU)("""
import time, torch

real = time.perf_counter_ns
time.perf_counter_ns = lambda: real() // 1_000_000 * 1_000_000

def run(x, w):
    return torch.relu(x @ w)
"""),
    # Where a call is as short as the loop around it, the parent's clock knows little and the own one is believed.
    attack("short_calls_a_third_shorter", TINY, before=LOOP)("""
real = time.perf_counter_ns
time.perf_counter_ns = lambda: real() * 2 // 3

def run(x, y):
    return torch.softmax(x + y, 1)
"""),
    honest("short_calls_as_they_are", TINY)("import torch\n\ndef run(x, y):\n    return torch.softmax(x.add(y), 1)\n"),
)
