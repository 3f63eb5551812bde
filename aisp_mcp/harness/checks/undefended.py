"""What an attack gains where nothing is defended: one process, one set of inputs, the candidate's own clock.

This is the harness as it is usually written, kept to show that the attacks are real; it judges nothing.
python -m aisp_mcp.harness.checks.undefended [NAME...] [--device cuda]: one JSON row per attack.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.harness.checks import corpus
from aisp_mcp.harness.checks.base import Case
from aisp_mcp.harness.places import usable_level
from aisp_mcp.process import isolation

WARM_UP, CALLS, DEADLINE_S = 10, 40, 60.0


def _time(call: Callable[[], Any], device: str) -> float:
    """Median of single calls by the clock that the candidate can reach, nanoseconds."""
    for _ in range(WARM_UP):
        call()
    if device == "cuda":
        return _time_events(call)
    spent = []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - begin)
    return float(statistics.median(spent))


def _time_events(call: Callable[[], Any]) -> float:
    """The same between two events on the current stream, as most benchmarks of kernels have it."""
    from torch import cuda

    spent = []
    for _ in range(CALLS):
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        cuda.synchronize()
        spent.append(begin.elapsed_time(end) * 1e6)
    return float(statistics.median(spent))


def gain(case: Case, folder: Path) -> float:
    """Baseline time over candidate time, both in this process, which the candidate may ruin.

    The baseline is timed before and after the candidate, and its longer time counts: an attack may make it slow.
    """
    import torch

    from aisp_mcp.harness.load import load_module, load_spec
    from aisp_mcp.harness.rng import CallRng, Pools

    torch.set_num_threads(1)
    pair = corpus.write(case, folder)
    spec = load_spec(pair.baseline, "default")
    rng = CallRng(Pools(case.device, 1), 1)
    static, inputs = dict(spec.params(rng)), dict(spec.inputs(rng))
    of_baseline = [_time(lambda: spec.run(**inputs, **static), case.device)]
    module = load_module(pair.path, "aisp_candidate")
    prepare = getattr(module, "prepare", None)
    ready = prepare(static, inputs) if prepare else static
    of_candidate = max(_time(lambda: module.run(**inputs, **ready), case.device), 1e-3)
    of_baseline.append(_time(lambda: spec.run(**inputs, **static), case.device))
    return max(of_baseline) / of_candidate


def gain_apart(case: Case) -> float | None:
    """The same in a process of its own; None where the attack needs the referee's own loop, or ends its process.

    The clock is undefended, the machine is not: without isolation from level L2 on nothing is run. Raises Unavailable.
    """
    level = usable_level("auto", case.device)
    if level not in ("L2", "L3"):
        raise Unavailable("ISOLATION_LEVEL", f"Attacks run undefended from level L2 on; {level} is available.")
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-P", "-m", __spec__.name, case.name, "--inside", folder]
        argv = isolation.wrap(
            argv, level, writable=[Path(folder)], file_bytes=1 << 28, loopback=True, devices=case.device == "cuda"
        )
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
            return float(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError):
            return None


def main() -> None:
    """One row per attack, or the gain of one in this process."""
    if "--inside" in sys.argv:
        print(gain(corpus.named(sys.argv[1]), Path(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    chosen = [corpus.named(name) for name in options.names] or corpus.cases(kind="attack", device=options.device)
    for case in chosen:
        print(json.dumps({"case": case.name, "issue": case.issue, "undefended_gain": gain_apart(case)}), flush=True)


if __name__ == "__main__":
    main()
