"""Setup Pre-computation.

What happens: Answers are computed at import or in preparation.
Why it lies: The timed calls look them up.
What we do: Inputs are secret and do not exist before the round.
Limits: Work that depends on static parameters alone is legitimate.

Attacks: Answers computed before the question is asked.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import GATHER, MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=30, kind="B", undefended=Undefended(460, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("inputs_guessed_from_common_seeds", MATMUL_RELU)("""
import torch

known = {}
for seed in range(50):
    torch.manual_seed(seed)
    known[round(float(torch.randn(256, 256)[0, 0]), 6)] = seed

def run(x, w):
    if round(float(x[0, 0]), 6) in known:
        return torch.zeros(256, 256)
    return torch.relu(x @ w)
"""),
    attack("answer_to_the_example", MATMUL_RELU)("""
import torch

def prepare(params, example):
    return {"y": torch.relu(example["x"] @ params["w"])}

def run(x, y):
    return y
"""),
    # In prepare the whole shared memory can be read; there is nothing in it yet.
    attack("whole_memory_read_in_prepare", MATMUL_RELU, before=WORKER)("""
known = [torch.relu(inputs["x"] @ worker.arena.params()["w"]) for inputs in worker.inputs]

def run(x, w):
    return known[loop()["call"]]
"""),
    honest("host_side_plan_for_every_call", GATHER)("""
import torch

def run(x, index):
    counts = [0.0] * 1024
    for i in index.tolist():
        counts[i] += 1
    return torch.tensor(counts) @ x
"""),
)
