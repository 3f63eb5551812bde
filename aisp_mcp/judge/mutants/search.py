"""Create the mutants of one baseline and find those that its contract accepts.

python -m aisp_mcp.judge.mutants.search BASELINE SIZE SECONDS MOST: prints one JSON document. The process loads the
baseline's file and nothing else of the user's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Benchmark, DistributedBenchmark, ServingBenchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.mutants import operations, programs
from aisp_mcp.judge.mutants.operations import Site, TorchCall, visit
from aisp_mcp.judge.mutants.trial import Program, Trial, calls
from aisp_mcp.judge.protocol.module_loader import load_spec
from aisp_mcp.judge.verifier.checks import quality
from aisp_mcp.judge.verifier.requirements import missing_needs

MOST_NUMBERED = 20_000  # torch calls of a run to consider
WITHIN_ROUNDING = 2.0  # times the baseline's own error; up to this, a mutant is another order of rounding
# These mutants differ from the baseline only on inputs that are never drawn: NaN, or other parameter values.
NEVER_DRAWN = (operations.NAN, programs.IGNORED)
SAME = 1e-6  # difference below which a mutant computes the same, whatever the contract


@dataclass
class Mutant:
    """An altered program and its result. accepted: calls without objection. failure: of the first that failed.
    error: the largest, in units of the contract; difference: the largest from the baseline, as a share of its output.
    """

    kind: str
    what: str
    program: Program
    accepted: int = 0
    failure: str | None = None
    error: float = 0.0
    difference: float = 0.0
    applied: list[int] = field(default_factory=lambda: [0])

    def status(self, calibrated: bool) -> str:
        """calibrated: errors are in units of the baseline's own."""
        if self.failure:
            return "rejected"
        if not self.applied[0] or not self.accepted:
            return "not applied"
        if self.difference == 0.0:
            return "accepted" if self.kind in NEVER_DRAWN else "equivalent"
        within = self.difference < SAME or (calibrated and self.error <= WITHIN_ROUNDING)
        return "within rounding" if within else "accepted"


def results(spec: Benchmark, seconds: float, most: int) -> dict[str, Any]:
    """The result of each mutant, within a budget of seconds and mutants. Raises BenchmarkError."""
    begin = time.monotonic()
    trial = Trial(spec)
    mutants = list(_mutants(trial, most))
    tried = 0
    for call in calls(7, trial.kinds):
        if tried and time.monotonic() - begin > seconds:
            break
        tried += 1
        for number, mutant in enumerate(mutants):
            if mutant.failure is None and (tried == 1 or time.monotonic() - begin < 2 * seconds):
                _try(trial, number, mutant, call)
    tolerance = spec.tolerance
    calibrated = not (tolerance.stochastic or tolerance.format or tolerance.approximate or quality.contract(spec))
    rows = [
        {
            "kind": mutant.kind,
            "what": mutant.what,
            "status": mutant.status(calibrated),
            "failure": mutant.failure,
            "error": mutant.error if mutant.error < float("inf") else None,
            "difference": mutant.difference,
        }
        for mutant in mutants
    ]
    return {"contract": _contract(spec), "calls": tried, "mutants": rows, "seconds": time.monotonic() - begin}


def _contract(spec: Benchmark) -> str:
    """The kind of contract, in a word or two."""
    tolerance = spec.tolerance
    if quality.contract(spec):
        return "quality of training"
    if tolerance.stochastic:
        return "random draws"
    if tolerance.approximate is not None:
        return f"approximation within {tolerance.approximate:g}"
    if tolerance.format:
        return f"format {tolerance.format}"
    return "exact" if tolerance.exact else f"error ratio {tolerance.error_ratio:g}"


def _try(trial: Trial, number: int, mutant: Mutant, call: Any) -> None:
    judged = trial.judge(number, mutant.program, call)
    mutant.accepted += judged.failure is None
    mutant.failure = judged.failure
    mutant.error = max(mutant.error, judged.error)
    mutant.difference = max(mutant.difference, judged.difference)


def _mutants(trial: Trial, most: int) -> Iterator[Mutant]:
    run, made = trial.spec.run, 0
    for kind, what, program in programs.mutants(run, *_names(trial)):
        made += 1
        yield Mutant(kind, what, program, applied=[1])
    for name, sites in _sites(trial).items():
        for site in sites:
            for kind, change in operations.changes(name):
                if made >= most:
                    return
                made += 1
                applied = [0]
                where = f"{name} (call {site.number + 1})"
                yield Mutant(kind, where, _altered(run, site, change, applied), applied=applied)


def _names(trial: Trial) -> tuple[list[str], list[str]]:
    """Names of floating-point static tensors, and inputs, with elements."""
    groups = trial.layout.params, trial.layout.inputs
    params, inputs = (
        [tensor.name for tensor in group if tensor.dtype.startswith(("float", "bfloat")) and tensor.nbytes]
        for group in groups
    )
    return params, inputs


def _sites(trial: Trial) -> dict[str, list[Site]]:
    """The first and the last call of each function with a known change, by name."""
    sites: dict[str, list[Site]] = defaultdict(list)

    def see(number: int, call: TorchCall) -> Any:
        if number < MOST_NUMBERED and operations.changes(call.name):
            sites[call.name].append(Site(number, call.name))
        return call.result()

    with trial.example() as tensors:
        visit(lambda: trial.spec.run(**tensors), see)
    return {name: [every[0], *every[-1:]] if len(every) > 1 else every for name, every in sites.items()}


def _altered(run: Program, site: Site, change: Callable[[TorchCall], Any], applied: list[int]) -> Program:
    """The program with one call changed. applied: counts how often."""

    def see(number: int, call: TorchCall) -> Any:
        if number != site.number or call.name != site.name:
            return call.result()
        try:
            result = change(call)
        except operations.Inapplicable:
            return call.result()
        applied[0] += 1
        return result

    return lambda **tensors: visit(lambda: run(**tensors), see)


def main() -> None:
    """Search one baseline."""
    path, size, seconds, most = sys.argv[1:]
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # a compiled function hides its torch calls
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    print(json.dumps(_answer(Path(path), size, float(seconds), int(most))), file=private, flush=True)


def _answer(path: Path, size: str, seconds: float, most: int) -> dict[str, Any]:
    try:
        spec = load_spec(path, size)
        if isinstance(spec, ServingBenchmark | DistributedBenchmark):
            words = "engines" if isinstance(spec, ServingBenchmark) else "several ranks"
            return {"skipped": f"mutants of {words} are not made"}
        if spec.answers is not None:
            return {"skipped": "mutants of programs that return any Python values are not made"}
        if missing := missing_needs(spec.needs, 1, len(os.sched_getaffinity(0))):
            return {"skipped": ", ".join(missing)}
        return results(spec, seconds, most)
    except BenchmarkError as error:
        return {"code": error.code, "message": error.message}
    except Exception as error:
        return {"code": "BASELINE_RAISED", "message": f"{type(error).__name__}: {str(error)[:300]}"}


if __name__ == "__main__":
    main()
