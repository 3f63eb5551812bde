"""What an attack gains where nothing is defended: one process, one set of inputs, the candidate's own clock.

This is the harness as it is usually written, kept to show that the attacks are real; it judges nothing.
python -m aisp_mcp.harness.checks.undefended [NAME...]: one JSON row per attack on the CPU.
"""

from __future__ import annotations

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
from aisp_mcp.process import isolation

WARM_UP, CALLS, DEADLINE_S = 10, 40, 60.0


def _time(call: Callable[[], Any]) -> float:
    """Median of single calls by the clock that the candidate can reach, nanoseconds."""
    for _ in range(WARM_UP):
        call()
    spent = []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        call()
        spent.append(time.perf_counter_ns() - begin)
    return statistics.median(spent)


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
    rng = CallRng(Pools("cpu", 1), 1)
    static, inputs = dict(spec.params(rng)), dict(spec.inputs(rng))
    of_baseline = [_time(lambda: spec.run(**inputs, **static))]
    module = load_module(pair.path, "aisp_candidate")
    prepare = getattr(module, "prepare", None)
    ready = prepare(static, inputs) if prepare else static
    of_candidate = max(_time(lambda: module.run(**inputs, **ready)), 1e-3)
    of_baseline.append(_time(lambda: spec.run(**inputs, **static)))
    return max(of_baseline) / of_candidate


def gain_apart(case: Case) -> float | None:
    """The same in a process of its own; None where the attack needs the referee's own loop, or ends its process.

    The clock is undefended, the machine is not: without isolation from level L2 on nothing is run. Raises Unavailable.
    """
    level = isolation.demand("auto")
    if level not in ("L2", "L3"):
        raise Unavailable("ISOLATION_LEVEL", f"Attacks run undefended from level L2 on; {level} is available.")
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-P", "-m", __spec__.name, case.name, "--inside", folder]
        argv = isolation.wrap(argv, level, writable=[Path(folder)], file_bytes=1 << 28)
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
    chosen = [corpus.named(name) for name in sys.argv[1:]] or corpus.cases(kind="attack", device="cpu")
    for case in chosen:
        print(json.dumps({"case": case.name, "issue": case.issue, "undefended_gain": gain_apart(case)}), flush=True)


if __name__ == "__main__":
    main()
