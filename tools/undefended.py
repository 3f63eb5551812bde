"""Gain of each attack without defences: three harnesses as they are usually written. They judge nothing.

"one process": baseline and candidate in one interpreter on one set of inputs, warmed up, by a clock that the candidate
can reach; on a GPU by events on the current stream. "cold calls": the same without a warm-up, by the mean of the first
calls. "own word": each side in a process of its own that reports its own times; what it reports is believed, and no
output is looked at. The last one is this harness with all its protections off.

python tools/undefended.py [NAME...] [--device cuda] [--out FILE]: one JSON row per attack, with the
harness in which it gained most.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.comparison import Options, compare
from aisp_mcp.judge.options import NONE
from aisp_mcp.judge.parent.processes.placement import usable_level
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.records import Skip
from aisp_mcp.process import isolation
from aisp_mcp.validity import corpus
from aisp_mcp.validity.issues import Case

WARM_UP, CALLS, COLD_CALLS, DEADLINE_S = 10, 40, 5, 60.0
BELIEVED = Preset("believed", replicates=2, round_s=0.006, palindromes=1)
ENOUGH = 1.5  # a gain that settles the question: no further harness is tried
SURE, AGAIN = 3.0, 2  # smaller gains are measured so often again, and the least counts: neighbours can feign them
FORGED = 1e9  # the largest gain reported where a clock stands still


def _spent(call: Callable[[], Any], calls: int, device: str) -> list[float]:
    """Nanoseconds of single calls by the clock that the candidate can reach."""
    if device == "cuda":
        return [_between_events(call) for _ in range(calls)]
    spent = []
    for _ in range(calls):
        begin = time.perf_counter_ns()
        call()
        spent.append(float(time.perf_counter_ns() - begin))
    return spent


def _between_events(call: Callable[[], Any]) -> float:
    """The same between two events on the current stream, as most benchmarks of kernels have it."""
    from torch import cuda

    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e6


def _warm(call: Callable[[], Any], device: str) -> float:
    for _ in range(WARM_UP):
        call()
    return statistics.median(_spent(call, CALLS, device))


def _cold(call: Callable[[], Any], device: str) -> float:
    return statistics.fmean(_spent(call, COLD_CALLS, device))


def _in_one_process(case: Case, folder: Path, of: Callable[[Callable[[], Any], str], float]) -> float:
    """Baseline time over candidate time, both in this process, which the candidate may ruin.

    The baseline is timed before and after the candidate, and its longer time counts: an attack may make it slow.
    """
    import torch

    from aisp_mcp.judge.protocol.draws.rng import CallRng
    from aisp_mcp.judge.protocol.module_loader import load_candidate, load_spec

    torch.set_num_threads(1)
    pair = corpus.write(case, folder)
    spec = load_spec(pair.baseline, "default")
    rng = CallRng(case.device, 1)
    static, inputs = dict(spec.params(rng)), dict(spec.inputs(rng))
    of_baseline = [of(lambda: spec.run(**inputs, **static), case.device)]
    module = load_candidate(pair.compiled()[0].path)
    prepare = getattr(module, "prepare", None)
    ready = prepare(static, inputs) if prepare else static
    of_candidate = max(of(lambda: module.run(**inputs, **ready), case.device), 1e-3)
    of_baseline.append(of(lambda: spec.run(**inputs, **static), case.device))
    return max(of_baseline) / of_candidate


def one_process(case: Case, folder: Path) -> float:
    """Warmed up, the median call."""
    return _in_one_process(case, folder, _warm)


def cold_calls(case: Case, folder: Path) -> float:
    """Not warmed up, the mean call."""
    return _in_one_process(case, folder, _cold)


def own_word(case: Case, folder: Path) -> float:
    """Both sides in processes of their own, which report their times. NaN where there is nothing to report."""
    options = Options(BELIEVED, "default", case.device, folder, "L1", protections=NONE)
    comparison = compare(corpus.write(case, folder), options)
    if isinstance(comparison, Skip) or comparison.clocks is None:
        return math.nan
    if comparison.goal == "memory":
        return comparison.ratio or math.nan
    claimed = comparison.clocks.ratio_worker
    return math.nan if claimed is None else min(claimed, FORGED)


FIRST_CALLS = (35, 85)  # the issues that are about them; elsewhere a cold baseline would pass for a gain
HARNESSES = {"one process": one_process, "own word": own_word, "cold calls": cold_calls}


def gain_apart(case: Case, harness: str) -> float | None:
    """The gain in a process of its own; None where the attack ends it, or needs what this harness has not.

    The clock is undefended, the machine is not: without isolation from level L2 on nothing is run. Raises Unavailable.
    """
    level = usable_level("auto", case.device)
    if level not in ("L2", "L3"):
        raise Unavailable("ISOLATION_LEVEL", f"Attacks run undefended from level L2 on; {level} is available.")
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-P", __file__, case.name, "--inside", folder, harness]
        argv = isolation.wrap(
            argv, level, writable=[Path(folder)], file_bytes=1 << 30, loopback=True, devices=case.device == "cuda"
        )
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
            gain = float(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError):
            return None
    return gain if math.isfinite(gain) else None


def _surely(case: Case, harness: str) -> float | None:
    """The gain, or the least of several where it is small."""
    gain = gain_apart(case, harness)
    for _ in range(AGAIN):
        if gain is None or not 1.0 < gain < SURE:
            break
        gain = min(gain, gain_apart(case, harness) or 0.0)
    return gain


def tried(case: Case, harnesses: Sequence[str] = tuple(HARNESSES)) -> dict[str, Any]:
    """The row of an attack: what it gained in each harness, and where most. Those are tried until the gain is large."""
    gains: dict[str, float | None] = {}
    for name in () if corpus.lacks(case) else harnesses:
        if name == "cold calls" and case.issue not in FIRST_CALLS:
            continue
        gains[name] = _surely(case, name)
        if (gains[name] or 0) > ENOUGH:
            break
    best = max(gains, key=lambda name: gains[name] or 0, default=None)
    rounded = {name: None if gain is None else float(f"{gain:.3g}") for name, gain in gains.items()}
    most = rounded.get(best or "")
    return {"case": case.name, "issue": case.issue, "gains": rounded, "harness": best if most else None, "gain": most}


def main() -> None:
    """One row per attack, or the gain of one in this process."""
    if "--inside" in sys.argv:
        name, folder, harness = sys.argv[1], Path(sys.argv[3]), sys.argv[4]
        print(HARNESSES[harness](corpus.named(name), folder), flush=True)
        os._exit(0)  # whatever an attack has left running
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--harness", choices=list(HARNESSES), nargs="+", default=list(HARNESSES), help="only these")
    parser.add_argument("--at-once", type=int, default=1, help="attacks side by side")
    parser.add_argument("--out", type=Path, help="also a file of all rows with where they come from")
    options = parser.parse_args()
    chosen = [corpus.named(name) for name in options.names] or corpus.cases(kind="attack", device=options.device)
    what = f"what attacks on device {options.device} gain in harnesses that defend nothing"
    rows = []
    for row in corpus.side_by_side(chosen, options.at_once, partial(tried, harnesses=options.harness)):
        rows.append(row)
        print(json.dumps(row), flush=True)
        corpus.keep(options.out, corpus.recorded(rows, options.device, BELIEVED.name) | {"what": what})


if __name__ == "__main__":
    main()
