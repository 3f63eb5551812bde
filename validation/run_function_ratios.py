"""Judge pairs of functions of known ratios on a CPU, beside torch.utils.benchmark on the same core in the same run.

python validation/run_function_ratios.py OUT.json [--preset default] [--part 1/4] [--only NAME] [--seconds 760]
    [--logs FOLDER]

Both functions repeat one operation, P and Q times, of torch, numpy or plain Python, on an array or a list. 60 pairs:
candidates of 3 µs to 5 ms, ratios of 1.02 to 5. The truth is the ratio of the two medians by torch.utils.benchmark on
inputs that change from call to call, with the worker's allocator: the mean of the logarithm over five processes, three
before the verdict and two after it, with its own 95 % interval. A pair whose truth is known to more than 3 % either way
is counted apart. An interval holds the truth if ratio and truth differ by at most the root of the sum of the squares of
the interval's width on that side and the truth's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from timeit import Timer
from typing import Any, NamedTuple

import torch

from aisp_mcp.errors import AispError
from aisp_mcp.judge import compare, placement
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.validity import corpus

# import, one operation, inputs, and how the truth makes them
OPERATIONS = {
    "torch_sin": ("import torch", "y = torch.sin(x)", "x=randn({n})", "torch.randn({n})"),
    "torch_softmax": ("import torch", "y = torch.softmax(x, 0)", "x=randn({n})", "torch.randn({n})"),
    "numpy_exp": ("import numpy as np", "y = np.exp(x)", "x=np.randn({n})", "torch.randn({n}).double().numpy()"),
    "numpy_sort": ("import numpy as np", "y = np.sort(x)", "x=np.randn({n})", "torch.randn({n}).double().numpy()"),
    "python_sum": ("", "y = sum(x)", "x=list(randint(0,1000,{n}))", "torch.randint(0, 1000, ({n},)).tolist()"),
    "python_sorted": ("", "y = sorted(x)", "x=list(randint(0,1000,{n}))", "torch.randint(0, 1000, ({n},)).tolist()"),
}
SIZES = (64, 1024, 16384, 65536)  # of the input, the largest whose operation fits into the candidate's time is taken
CALLS_S = (3e-6, 6e-6, 20e-6, 60e-6, 150e-6, 400e-6, 1.2e-3, 5e-3)
RATIOS = (1.02, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
PAIRS = 60
# A few inputs in turn would be learned: `sorted` of the same twelve short lists is up to twice as fast as of new ones.
SETS_BYTES, LEAST_SETS, MOST_SETS = 8 << 20, 12, 512
CERTAIN = 0.03
BEFORE, AFTER, TURNS = 3, 2, 5  # processes of the truth, and turns of both functions in each
ALLOCATOR = {  # as workers have it
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
FUNCTION = "{imports}\n\ndef f(x):\n    for _ in range({times}):\n        {operation}\n    return y\n"
TIMED = """
import importlib.util, itertools, json, sys, torch
from torch.utils.benchmark import Timer
torch.set_num_threads(1)
paths, make, count, turns = json.load(sys.stdin)
sets = [eval(make) for _ in range(count)]
runs = []
for path in paths:
    spec = importlib.util.spec_from_file_location("m", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runs.append(module.f)
seconds = [[] for _ in runs]
for turn in range(turns):
    for place in (range(len(runs)) if turn % 2 else reversed(range(len(runs)))):
        timer = Timer("f(next(turn))", globals={"f": runs[place], "turn": itertools.cycle(sets)})
        seconds[place].append(timer.blocked_autorange(min_run_time=0.05).median)
# An empty function shows what the statement costs.
timer = Timer("f(next(turn))", globals={"f": lambda x: None, "turn": itertools.cycle(sets)})
empty = timer.blocked_autorange(min_run_time=0.05).median
print(json.dumps([sorted(row)[len(row) // 2] - empty for row in seconds]))
"""


class Case(NamedTuple):
    name: str
    n: int
    often: int  # times that the baseline repeats the operation
    times: int  # times that the candidate does

    @property
    def label(self) -> str:
        return f"{self.name}_{self.n}_{self.often}_{self.times}"

    @property
    def inputs(self) -> str:
        return OPERATIONS[self.name][2].format(n=self.n)

    def write(self, folder: Path) -> list[str]:
        imports, operation, *_ = OPERATIONS[self.name]
        paths = [folder / f"{kind}.py" for kind in ("slow", "fast")]
        for path, times in zip(paths, (self.often, self.times), strict=True):
            path.write_text(FUNCTION.format(imports=imports, operation=operation, times=times))
        return [str(path) for path in paths]

    def seconds(self, paths: Iterable[str], cpu: int) -> list[float]:
        """Seconds of a call of each file in a process of its own."""
        sets = min(max(SETS_BYTES // (8 * self.n), LEAST_SETS), MOST_SETS)
        request = json.dumps([list(paths), OPERATIONS[self.name][3].format(n=self.n), sets, TURNS])
        done = subprocess.run(
            ["taskset", "-c", str(cpu), sys.executable, "-c", TIMED],
            input=request, capture_output=True, text=True, check=True, env=os.environ | ALLOCATOR,
        )  # fmt: skip
        return list(json.loads(done.stdout.splitlines()[-1]))


def operation_s(name: str, n: int) -> float:
    """Seconds of one operation, roughly: only the sizes of the pairs depend on it."""
    imports, operation, _, make = OPERATIONS[name]
    values = eval(make.format(n=n), {"torch": torch})
    return min(Timer(operation, imports or "pass", globals={"x": values}).repeat(5, 20)) / 20


def cases() -> list[Case]:
    """60 pairs in random order, the same on each machine but for the sizes that fill the candidate's time there."""
    torch.set_num_threads(1)
    units = {key: operation_s(*key) for key in itertools.product(OPERATIONS, SIZES)}
    found = list[Case]()
    names = itertools.cycle(OPERATIONS)
    for number, (call_s, ratio) in enumerate(itertools.product(CALLS_S, RATIOS)):
        name = next(names)
        least = max(1, round(1 / (ratio - 1))) if ratio < 2 else 1  # whole numbers whose quotient is the ratio
        fits = [n for n in SIZES if units[name, n] * least <= 1.5 * call_s] or [SIZES[0]]
        n = fits[-1 - number % len(fits)]
        times = max(least, round(call_s / units[name, n]))
        found.append(Case(name, n, max(times + 1, round(times * ratio)), times))
    # Four more of everyday sizes.
    found += [Case("torch_sin", 1 << 20, 4, 2), Case("numpy_exp", 1 << 20, 3, 2), Case("python_sum", 200_000, 2, 1)]
    found.append(Case("python_sorted", 100_000, 3, 2))
    return random.Random(1).sample(found, PAIRS)


def judged(case: Case, preset: str, cpu: int, logs: Path | None) -> dict[str, Any]:
    """One comparison as a row, with the truth before and after it. logs: folder for its log of raw measurements."""
    with tempfile.TemporaryDirectory() as folder:
        paths = case.write(Path(folder))
        known = [case.seconds(paths, cpu) for _ in range(BEFORE)]
        load, begin = os.getloadavg()[0], time.monotonic()
        row: dict[str, Any] = {"name": case.label, "load": load}
        try:
            result = compare(f"{paths[0]}:f", f"{paths[1]}:f", inputs=case.inputs, preset=preset, folder=logs)
        except AispError as error:
            return row | {"error": f"{error.code}: {error.message}"}
        row["seconds"] = time.monotonic() - begin
        known += [case.seconds(paths, cpu) for _ in range(AFTER)]
    row["call_s"] = statistics.median(fast for _, fast in known)
    row["truths"] = [slow / fast for slow, fast in known]
    truth = stats.t_interval([math.log(ratio) for ratio in row["truths"]])
    row["truth"], row["truth_error"] = math.exp(truth.mean), truth.half_width
    data = result.model_dump(mode="json")
    row["log"] = str(result.log_path) if logs else None
    keep = ("verdict", "ratio", "interval", "noise_floor", "clocks", "sentence", "phases")
    return row | {key: data.get(key) for key in keep} | {"flags": [flag["code"] for flag in data.get("flags", [])]}


def holds(row: dict[str, Any]) -> bool:
    """Return True if the interval holds the truth within what the truth itself is known to."""
    above = row["truth"] > row["ratio"]
    width = math.log(row["interval"]["high" if above else "low"] / row["ratio"])
    return abs(math.log(row["truth"] / row["ratio"])) <= math.hypot(width, row["truth_error"])


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How near the ratios are, how often intervals contain the truth, and the seconds of a verdict."""
    judged_rows = [row for row in rows if row.get("ratio")]
    done = [row for row in judged_rows if row["truth_error"] <= CERTAIN]
    document: dict[str, Any] = {"rows": len(rows), "errors": len(rows) - len(judged_rows)}
    document["truth not certain"] = len(judged_rows) - len(done)
    for label, least_s, most_s, allowed in (("from 20 µs", 18e-6, 1.0, 0.03), ("3 to 20 µs", 0.0, 18e-6, 0.10)):
        chosen = [row for row in done if least_s <= row["call_s"] < most_s]
        apart = [abs(math.log(row["ratio"] / row["truth"])) for row in chosen]
        held = [holds(row) for row in chosen if row.get("interval") and row["clocks"]["used"] != "lower_bound"]
        document[label] = {
            "rows": len(chosen),
            f"within {allowed:.0%}": sum(one <= math.log1p(allowed) for one in apart),
            "median error": statistics.median(apart) if apart else None,
            "bounds": sum((row["clocks"] or {}).get("used") == "lower_bound" for row in chosen),
            "intervals with the truth": f"{sum(held)} of {len(held)}",
            "not decided": sum(row["verdict"] == "inconclusive" for row in chosen),
        }
    seconds = sorted(row["seconds"] for row in judged_rows)
    if seconds:
        document["seconds"] = {"median": statistics.median(seconds), "95 %": seconds[int(0.95 * (len(seconds) - 1))]}
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="default")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts")
    parser.add_argument("--only", action="append", help="operations")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no pair after that")
    parser.add_argument("--logs", type=Path, help="folder for the logs of raw measurements")
    options = parser.parse_args()
    begin, cpu = time.monotonic(), max(placement.measuring_cpus())
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, options.part.split("/"))
    rows = list[dict[str, Any]]()
    for case in cases()[part - 1 :: parts]:
        if time.monotonic() - begin > options.seconds or (options.only and case.name not in options.only):
            continue
        rows.append(judged(case, options.preset, cpu, options.logs))
        hidden = ("truths", "sentence", "phases", "noise_floor", "log")
        print(json.dumps({key: value for key, value in rows[-1].items() if key not in hidden}), flush=True)
        what = "pairs of functions whose true ratio is known, on a CPU"
        corpus.keep(
            options.out, corpus.recorded(rows, "cpu", options.preset) | {"what": what, "summary": summary(rows)}
        )
    print(json.dumps(summary(rows), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
