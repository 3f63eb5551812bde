"""Outlier Injection.

What happens: The other side is made slow.
Why it lies: Its time grows instead of the candidate's falling.
What we do: Separate processes, stopped outside their rounds; palindromes.
Limits: Load from other users is noise on both sides.

Attacks: The other side made slow.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=81, kind="B", isolation="L2", undefended=Undefended(4.69, "one process", "cpu"), executed_on=("cpu",))

_BURN = """
import os, time, torch

candidate = os.getpid()
for _ in range(4):
    if os.fork():
        os.wait()
        continue
    if os.fork():
        os._exit(0)
    os.setsid()
    while True:
        with open(f"/proc/{candidate}/stat") as file:
            stands = file.read().rpartition(")")[2].split()[0] == "T"
        if stands:
            os.sched_setaffinity(0, os.sched_getaffinity(candidate))
        else:
            time.sleep(0.0003)
"""

CASES = (
    attack("orphans_burn_while_the_candidate_stands", MATMUL_RELU, before=_BURN, needs=("namespaces",))("""
def run(x, w):
    return torch.relu(x @ w)
"""),
    # The rounds without calls, which tell what the loop costs, become so slow that any claim of its own clock agrees.
    attack("tolerance_widened_by_orphans", MATMUL_RELU, before=_BURN, needs=("namespaces",))("""
real = time.perf_counter_ns
time.perf_counter_ns = lambda: real() // 3

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("baseline_patched_from_here", MATMUL_RELU)("""
import sys, time, torch
from aisp_mcp.judge.worker import module_loader as load
from aisp_mcp.judge.worker import main as worker

slow = lambda *_, **__: time.sleep(1)
load.load_spec = worker.load_spec = slow
for module in list(sys.modules.values()):
    if getattr(module, "Benchmark", None):
        module.Benchmark.run = module.Benchmark.reference = slow

def run(x, w):
    return torch.relu(x @ w)
"""),
    honest("uneven_times", MATMUL_RELU)("""
import torch

calls = [0]

def run(x, w):
    calls[0] += 1
    for _ in range(calls[0] % 3):
        x.sum()
    return torch.relu(x @ w)
"""),
)
