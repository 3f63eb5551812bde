"""Cherry-picking.

What happens: Samples are chosen or rewritten by the measured side.
Why it lies: The report shows what the candidate likes.
What we do: Samples taken by the parent; log chained by hashes.
Limits: Up to the tolerated disagreement the own clock may err.

Attacks: Samples chosen or rewritten by the measured side.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import LOOP

ABOUT = Issue(id=80, kind="B", undefended=Undefended(369000, "own word", "cpu"), executed_on=("cpu",))

CASES = (
    attack("durations_rewritten", MATMUL_RELU, before=LOOP)("""
def run(x, w):
    found = loop()
    for i in range(found["call"]):
        found["durations"][i] = 1
    return torch.relu(x @ w)
"""),
    attack("durations_rewritten_by_a_thread", MATMUL_RELU, before=LOOP)("""
def rewrite(durations, count):
    while True:
        for i in range(count):
            durations[i] = min(durations[i], 10_000)

started = []

def run(x, w):
    if not started:
        started.append(threading.Thread(target=rewrite, args=(loop()["durations"], 2), daemon=True))
        started[0].start()
    return torch.relu(x @ w)
"""),
    attack("durations_negative_or_absurd", MATMUL_RELU, before=LOOP)("""
clock = itertools.cycle([0, -(1 << 62), 1 << 62, 1, 0])
time.perf_counter_ns = clock.__next__

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("looks_at_its_caller", MATMUL_RELU)("""
import sys, torch

def run(x, w):
    assert sys._getframe(1).f_code.co_name
    return torch.relu(x @ w)
"""),
)
