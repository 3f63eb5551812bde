"""How much the copy of an output is worth to who spares it and forges a clock to match; one JSON row per operation.

python tests/attacks/run_copy_spared.py [--at-once 3] [--out docs/data/cpu-attacks-copy-spared.json]

The referee copies each output in the worker's own process and subtracts what that costs the baselines. The attack
computes into the referee's memory instead, so that it pays no copy, and subtracts the copy from its own clock as well:
both clocks agree. The twin writes into a buffer of its own and forges nothing; what it gains is no more than a buffer
is worth. This is a known limit (docs/referee.md), measured and not judged: nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from aisp_mcp.harness.checks import baselines, corpus
from aisp_mcp.harness.checks.base import Case, attack, honest
from aisp_mcp.harness.checks.snippets import SHIM
from aisp_mcp.harness.timing import Preset

PRESET = Preset("copies", replicates=4, round_s=0.006, palindromes=5)

# Operation: its specification, the bytes of its output, and how it is computed into `y`.
OPERATIONS = {
    "copy of 4 MB": (baselines.COPY, 4 << 20, "x", "y.copy_(x)"),
    "relu of 1 MB": (baselines.RELU, 1 << 20, "x", "torch.clamp_min(x, 0, out=y)"),
    "softmax of 1 MB": (baselines.SOFTMAX, 1 << 20, "x", "torch.softmax(x, 1, out=y)"),
    "product of 256 by 256": (baselines.MATMUL_RELU, 256 << 10, "x, w", "torch.mm(x, w, out=y).relu_()"),
    "product of 768 by 768": (baselines.MATMUL_LONG, 768 * 768 * 4, "x, w", "torch.mm(x, w, out=y).relu_()"),
    "sums of long rows": (baselines.LONG_SUM, 32, "x", "torch.sum(x, 1, out=y)"),
}

_SPARED = """
real, cost, began = time.perf_counter_ns, [], [0]

def learn(place):
    sources = [torch.rand_like(place) for _ in range(6)]
    spent = []
    for source, (other, *_) in zip(sources, shim.outputs[1:]):
        begin = real()
        other.copy_(source)
        spent.append(real() - begin)
    cost.append(sorted(spent)[len(spent) // 2] if spent else 0)

def fake():
    now = real()
    if not began[0]:
        began[0] = now
        return now
    begin, began[0] = began[0], 0
    return max(now - (cost[0] if cost else 0), begin + (now - begin) // 2)

def run({names}):
    y = shim.outputs[loop()["call"]][0]
    if not cost:
        learn(y)
    {compute}

type(shim).store = lambda *_: None
time.perf_counter_ns = fake
"""

_TWIN = """
import torch

kept = []

def run({names}):
    if not kept:
        kept.append({first})
    y = kept[0]
    {compute}
    return y
"""


def cases(name: str) -> tuple[Case, Case]:
    """The attack and its twin."""
    spec, _, names, compute = OPERATIONS[name]
    first = "torch.empty(x.shape[0])" if name.startswith("sums") else "torch.empty_like(x)"
    parts = {"names": names, "compute": compute, "first": first}
    return (
        attack(88, "copy_spared", spec, SHIM + _SPARED.format(**parts)),
        honest(88, "buffer_of_its_own", spec, _TWIN.format(**parts)),
    )


def row(name: str) -> dict[str, Any]:
    """What the referee reported of both."""
    found: dict[str, Any] = {"operation": name, "output_bytes": OPERATIONS[name][1]}
    for case in cases(name):
        with tempfile.TemporaryDirectory() as folder:
            judged = corpus.row(case, corpus.run(case, Path(folder), PRESET))
        found[case.name] = {key: judged[key] for key in ("verdict", "ratio", "interval", "clocks", "flags", "error")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, default=1, help="operations side by side, each on cores of its own")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    what, rows = "what sparing the copy of an output gains, with a clock forged to match", []
    for found in corpus.side_by_side(list(OPERATIONS), options.at_once, row):
        rows.append(found)
        print(json.dumps(found), flush=True)
        corpus.keep(options.out, corpus.recorded(rows, "cpu", PRESET.name) | {"what": what})


if __name__ == "__main__":
    main()
