"""Judge pairs on a CPU whose true ratio is known, next to torch.utils.benchmark in the same run.

python validation/run_known_ratios.py identical|doubled [OUT.json] [--preset quick] [--runs 1] [--only NAME]

identical: the candidate is the baseline's own expression; the ratio is 1. doubled: the baseline computes it twice, on
two sets of inputs; the ratio is 2. One row per comparison with the ratio on each clock, and the load of the machine
before it. For doubled pairs the row also has torch.utils.benchmark's ratio, measured on the same core immediately
before and after: with the same inputs in every call, and with inputs that change from call to call.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aisp_mcp.errors import AispError
from aisp_mcp.judge import comparison, placement
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.validity import corpus


class Operation(NamedTuple):
    """An expression of tensors. shapes: of the input `x` and, where there are two, of `w`."""

    expression: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def names(self) -> list[str]:
        return ["x", "w"][: len(self.shapes)]


OPERATIONS = {
    "zeta_300": Operation("torch.special.zeta(x.abs() + 1.5, w.abs() + 1)", ((300,), (300,))),
    "zeta_1500": Operation("torch.special.zeta(x.abs() + 1.5, w.abs() + 1)", ((1500,), (1500,))),
    "zeta_9000": Operation("torch.special.zeta(x.abs() + 1.5, w.abs() + 1)", ((9000,), (9000,))),
    "matmul_160": Operation("x @ w", ((160, 160), (160, 160))),
    "matmul_320": Operation("x @ w", ((320, 320), (320, 320))),
    "matmul_640": Operation("x @ w", ((640, 640), (640, 640))),
    "relu_256k": Operation("torch.relu(x)", ((256, 256),)),
    "relu_1m": Operation("torch.relu(x)", ((512, 512),)),
    "softmax_256": Operation("torch.softmax(x, 1)", ((256, 512),)),
    "softmax_1024": Operation("torch.softmax(x, 1)", ((1024, 1024),)),
    "sort_8k": Operation("torch.sort(x).values", ((8192,),)),
    "sort_64k": Operation("torch.sort(x).values", ((65536,),)),
    "row_sum": Operation("x.sum(1)", ((1024, 1024),)),
    "gelu_128k": Operation("torch.nn.functional.gelu(x)", ((256, 512),)),
    "gelu_1m": Operation("torch.nn.functional.gelu(x)", ((1024, 1024),)),
    "layer_norm": Operation("torch.nn.functional.layer_norm(x, (1024,))", ((512, 1024),)),
    "cumsum": Operation("torch.cumsum(x, 1)", ((256, 1024),)),
    "transpose": Operation("x.t().contiguous()", ((768, 768),)),
    "erf_inv": Operation("torch.special.erfinv(torch.tanh(x))", ((256, 256),)),
    "chain_of_small": Operation("((x + 1) * w - x).tanh() * 0.5", ((64, 64), (64, 64))),
}
ALLOCATOR = {  # as workers have it
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
COPIES = {"identical": 1, "doubled": 2}  # inputs of the baseline per input of the candidate

BASELINE = '''"""{name}."""
import torch
from aisp_mcp.bench import Benchmark


class Known(Benchmark):
    def inputs(self, rng):
        return {{{inputs}}}

    def compute(self, {arguments}):
        return {expression}

    def run(self, {all_arguments}):
{wasted}        return self.compute({arguments})
'''
CANDIDATE = '''"""{name}."""
import torch


def compute({arguments}):
    return {expression}


def run({all_arguments}):
    return compute({arguments})
'''
TIMED = """
import itertools, json, sys, torch
from torch.utils.benchmark import Timer
torch.set_num_threads(1)
expression, names, shapes, copies = json.load(sys.stdin)
SETS, width = 12, len(names)
sets = [[torch.randn(*shape) for shape in shapes * copies] for _ in range(SETS)]
space = {"torch": torch}
exec(f"def compute({', '.join(names)}):\\n    return {expression}", space)
compute = space["compute"]

def once(*inputs):
    return compute(*inputs[:width])

def often(*inputs):
    for begin in range(width, len(inputs), width):
        compute(*inputs[begin : begin + width])
    return compute(*inputs[:width])

runs = [often, once]
found = {}
for kind, statement in (("reused", "run(*sets[0])"), ("fresh", "run(*next(turn))")):
    seconds = [[], []]
    for place in (0, 1, 1, 0, 0, 1):
        scope = {"run": runs[place], "sets": sets, "turn": itertools.cycle(sets)}
        seconds[place].append(Timer(statement, globals=scope).blocked_autorange(min_run_time=0.15).median)
    base, candidate = (sorted(row)[1] for row in seconds)
    found |= {kind: base / candidate, f"{kind}_s": candidate}
print(json.dumps(found))
"""


def write(folder: Path, name: str, copies: int) -> comparison.Pair:
    """Write both files of an operation."""
    operation = OPERATIONS[name]
    sets = [[f"{letter}{turn or ''}" for letter in operation.names] for turn in range(copies)]
    shapes = dict(zip(itertools.chain(*sets), operation.shapes * copies, strict=True))
    words = {
        "name": name,
        "inputs": ", ".join(f'"{letter}": rng.randn({", ".join(map(str, shape))})' for letter, shape in shapes.items()),
        "arguments": ", ".join(operation.names),
        "all_arguments": ", ".join(shapes),
        "expression": operation.expression,
    }
    baseline, candidate = folder / f"baseline_{name}.py", folder / f"optimized_{name}.py"
    wasted = "".join(f"        self.compute({', '.join(names)})\n" for names in sets[1:])
    baseline.write_text(BASELINE.format(wasted=wasted, **words))
    candidate.write_text(CANDIDATE.format(**words))
    return comparison.Pair(f"known:{name}", baseline, "", candidate)


def plain(name: str, copies: int) -> dict[str, float]:
    """Ratios and seconds by torch.utils.benchmark, on a core that workers are measured on."""
    core = max(placement.measuring_cpus())
    request = json.dumps([OPERATIONS[name].expression, OPERATIONS[name].names, OPERATIONS[name].shapes, copies])
    argv = ["taskset", "-c", str(core), sys.executable, "-c", TIMED]
    env = (
        os.environ | ALLOCATOR
    )  # or each large output would be new memory of the kernel, twice where it is computed twice
    done = subprocess.run(argv, input=request, capture_output=True, text=True, check=True, env=env)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def judged(name: str, copies: int, preset: str, logs: Path | None) -> dict[str, Any]:
    """One comparison as a row; an error as text."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        log_folder = (logs / f"{name}-{time.time():.0f}") if logs else Path(folder)
        log_folder.mkdir(exist_ok=True, parents=True)
        options = comparison.Options(PRESETS[preset], "default", "cpu", log_folder)
        try:
            result = comparison.compare(write(Path(folder), name, copies), options)
        except AispError as error:
            return {"name": name, "load": load, "error": f"{error.code}: {error.message}"}
    data = result.model_dump(mode="json")
    keep = ("verdict", "ratio", "interval", "noise_floor", "clocks", "sentence", "seconds", "phases")
    row = {"name": name, "load": load, **{key: data.get(key) for key in keep}}
    return row | {
        "call_s": (data.get("optimized") or {}).get("p50_s"),
        "flags": [flag["code"] for flag in data.get("flags", [])],
    }


def summary(rows: Sequence[dict[str, Any]], truth: float) -> dict[str, Any]:
    """Geometric mean, extremes and verdicts of what was judged."""
    logs = [math.log(row["ratio"] / truth) for row in rows if row.get("ratio")]
    verdicts = [row.get("verdict", "error") for row in rows]
    document: dict[str, Any] = {
        "rows": len(rows),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))},
    }
    if not logs:
        return document
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return document | {
        "mean_of_truth": math.exp(statistics.fmean(logs)),
        "standard_error": error,
        "least": math.exp(min(logs)),
        "most": math.exp(max(logs)),
        "below_truth": sum(log_ratio < 0 for log_ratio in logs),
        "median_load": statistics.median(row["load"] for row in rows),
        "median_seconds": statistics.median(row["seconds"] for row in rows if row.get("seconds")),
    }


def main() -> None:
    """Judge every operation as often as asked, and print a line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=sorted(COPIES))
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="quick")
    parser.add_argument("--runs", type=int, default=1, help="of each operation")
    parser.add_argument("--only", action="append", choices=sorted(OPERATIONS))
    parser.add_argument("--logs", type=Path, help="folder that the raw rounds are kept in")
    options = parser.parse_args()
    copies, rows = COPIES[options.what], list[dict[str, Any]]()
    for name in [name for _ in range(options.runs) for name in options.only or OPERATIONS]:
        before = [plain(name, copies)] if copies > 1 else []
        row = judged(name, copies, options.preset, options.logs)
        if before:
            both = [*before, plain(name, copies)]
            row["plain"] = {key: math.sqrt(math.prod(measured[key] for measured in both)) for key in both[0]}
        rows.append(row)
        shown = ("name", "load", "verdict", "ratio", "clocks", "plain", "flags", "call_s", "seconds", "error")
        print(json.dumps({key: row[key] for key in shown if key in row}), flush=True)
        what = f"pairs whose true ratio is {copies}, on a CPU"
        record = corpus.recorded(rows, "cpu", options.preset) | {"what": what, "summary": summary(rows, float(copies))}
        corpus.keep(options.out, record)
    print(json.dumps(summary(rows, float(copies)), indent=1))


if __name__ == "__main__":
    main()
