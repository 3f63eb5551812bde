"""Gain of a candidate that skips the copy of its output and forges a clock to match; one JSON row per run.

python tests/judge/attacks/run_copy_spared.py [OPERATION...] [--runs 3] [--at-once 1] [--out FILE]

The referee copies each output in the worker's own process and subtracts what that costs the baselines. The attacks
compute into the referee's memory instead, so that they pay no copy, and subtract the copy from their own clock as well.
The twin computes the same into a buffer of its own and forges nothing: its ratio is the truth of that operation. Rounds
without copies (aisp_mcp/judge/parent/timing/copy_cost.py) are meant to stop each of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from aisp_mcp.judge.attacks import corpus, loader
from aisp_mcp.judge.attacks.base import Case
from aisp_mcp.judge.presets import Preset

PRESET = Preset("copies", replicates=4, round_s=0.005, palindromes=9)

PRODUCT = loader.baseline("matmul_relu").replace("256, 256", "160, 160")

# Operation: its specification, the bytes of its output, and how it is computed into `y`.
OPERATIONS = {
    "copy of 4 MB": (loader.baseline("copy"), 4 << 20, "x", "y.copy_(x)"),
    "relu of 1 MB": (loader.baseline("relu"), 1 << 20, "x", "torch.clamp_min(x, 0, out=y)"),
    "softmax of 1 MB": (loader.baseline("softmax"), 1 << 20, "x", "torch.softmax(x, 1, out=y)"),
    "product of 256 by 256": (loader.baseline("matmul_relu"), 256 << 10, "x, w", "torch.mm(x, w, out=y).relu_()"),
    "product of 160 by 160": (PRODUCT, 160 * 160 * 4, "x, w", "torch.mm(x, w, out=y).relu_()"),
}

_SPARED = """
buffer = []

def learn(place):
    buffer.append(torch.empty_like(place))
    sources, spent = [torch.rand_like(place) for _ in range(6)], []
    for source, (other, *_) in zip(sources, worker.outputs[1:]):
        begin = real()
        other.copy_(source)
        spent.append(real() - begin)
    cost[0] = int({share} * sorted(spent)[len(spent) // 2]) if spent else 0

def wait(nanoseconds):
    end = real() + nanoseconds
    while real() < end:
        pass

def run({names}):
    found = loop()
    y = worker.outputs[found["call"]][0]
    if not buffer:
        learn(y)
    {place}
    {compute}
    return y

time.perf_counter_ns = fake
"""

_NO_STORE = "type(worker).store = lambda *_: None\n"
_NO_COPY = """
plain = torch.Tensor.copy_
torch.Tensor.copy_ = lambda self, other: self if self.data_ptr() == other.data_ptr() else plain(self, other)
"""
_SOME = """
store = type(worker).store
type(worker).store = lambda self, call, output: store(self, call, output) if call % 5 > 1 else None
"""

# Name: where it computes, the share of the copy that it takes off its clock, and how it spares the copy.
WAYS = {
    "store replaced": ("pass", 1.0, _NO_STORE),
    "copy_ replaced": ("pass", 1.0, _NO_COPY),
    "shows a buffer": ("y = buffer[0] if found.get('no_copy') else y", 1.0, _NO_STORE),
    "shows a buffer, makes single calls long": (
        "y = buffer[0] if found.get('no_copy') else y; "
        "wait(300_000 * (found['count'] == 1 and not found.get('no_copy')))",
        1.0,
        _NO_STORE,
    ),
    "makes timed calls longer": (
        "wait(cost[0] // 2 * (found['count'] > 1 and not found.get('no_copy')))",
        1.0,
        _NO_STORE,
    ),
    "spares two of five": ("y = y if found['call'] % 5 < 2 or found.get('no_copy') else buffer[0]", 0.4, _SOME),
    "takes a third off its clock": ("pass", 0.33, _NO_STORE),
}

_TWIN = """
import torch

kept = []

def run({names}):
    if not kept:
        kept.append(torch.empty_like(x))
    y = kept[0]
    {compute}
    return y
"""


def cases(operation: str) -> list[Case]:
    """The twin and the attacks."""
    spec, _, names, compute = OPERATIONS[operation]
    found = [Case("twin", "honest", spec, _TWIN.format(names=names, compute=compute))]
    for way, (place, share, rest) in WAYS.items():
        spared = _SPARED.format(names=names, compute=compute, place=place, share=share)
        source = "\n".join([loader.snippet("worker"), loader.snippet("cheaper_clock")]) + spared + rest
        found.append(Case(way.translate(str.maketrans(" ,", "__")), "attack", spec, source))
    return found


def row(operation: str, case: Case) -> dict[str, Any]:
    """Report of the harness on one run."""
    with tempfile.TemporaryDirectory() as folder:
        judged = corpus.row(case, corpus.run(case, Path(folder), PRESET))
    kept = {key: judged[key] for key in ("verdict", "ratio", "interval", "clocks", "flags", "error")}
    return {"operation": operation, "output_bytes": OPERATIONS[operation][1], "way": case.name, **kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", default=list(OPERATIONS), metavar="OPERATION")
    parser.add_argument("--runs", type=int, default=1, help="of each case")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side, each on cores of its own")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    what, rows = "what sparing the copy of an output gains, with a clock forged to match", []
    chosen = [(name, case) for _ in range(options.runs) for name in options.operations for case in cases(name)]
    for found in corpus.side_by_side(chosen, options.at_once, lambda one: row(*one)):
        rows.append(found)
        print(json.dumps(found), flush=True)
        corpus.keep(options.out, corpus.recorded(rows, "cpu", PRESET.name) | {"what": what})


if __name__ == "__main__":
    main()
