"""All cases, run against the real harness and judged.

python -m aisp_mcp.validity.corpus NAME DEVICE FOLDER PRESET LEVEL [TURN [LOADED]]: one case, as run_apart() starts it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from aisp_mcp.errors import AispError
from aisp_mcp.judge import presets
from aisp_mcp.judge.comparison import Options, Pair, Report, compare, loaded_in
from aisp_mcp.judge.placement import usable_level
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.records import Skip
from aisp_mcp.process import isolation
from aisp_mcp.system import manifest
from aisp_mcp.system.gpu import nvml
from aisp_mcp.validity import issues
from aisp_mcp.validity.issues import DEADLINE_S, Case, Finding, Outcome

PRESET = Preset("selftest", replicates=2, round_s=0.006, palindromes=1)
FAST = Preset("fast", replicates=1, round_s=0.004, palindromes=1)
PRESETS = {preset.name: preset for preset in (PRESET, FAST, *presets.PRESETS.values())}
MODULE = "aisp_mcp.validity.corpus"
ALLOWED_GAIN = 1.05  # above the true ratio: the clocks' tolerance allows this much
BAD = {"through", "lost", "flagged wrongly"}
Item = TypeVar("Item")
CERTAIN_GAIN = 1.5  # above this, the width of a two-replicate interval is no excuse


def cases(category: str | None = None, kind: str | None = None, device: str | None = None) -> list[Case]:
    """The cases of a category, a kind ("attack" or "honest") and a device; all of them by default."""
    return [
        case
        for folder, case in issues.cases()
        if category in (None, folder) and kind in (None, case.kind) and device in (None, case.device)
    ]


def named(name: str) -> Case:
    """The case of that name. Raises KeyError."""
    return {case.name: case for _, case in issues.cases()}[name]


def write(case: Case, folder: Path) -> Pair:
    """Write both files where the harness looks for them."""
    baseline, candidate = folder / f"baseline_{case.name}.py", folder / f"optimized_{case.name}{case.suffix}"
    baseline.write_text(case.baseline, "utf-8")
    candidate.write_text(case.candidate, "utf-8")
    return Pair(f"selftest:{case.name}", baseline, "", candidate)


def lacks(case: Case) -> str | None:
    """The first requirement of the case that this machine does not meet, if any."""
    if "torch.compile" in case.needs and not shutil.which("c++"):
        return "a C++ compiler"
    if "g++" in case.needs and not shutil.which("g++"):
        return "the compiler g++"
    if "two devices" in case.needs and len(nvml.gpu_uuids()) < 2:
        return "a second GPU"
    if "namespaces" in case.needs and isolation.probe().level not in ("L2", "L3"):
        return "isolation level L2: the attack would harm this machine"
    return None


@contextmanager
def in_turn(turn: Path | None) -> Iterator[Report]:
    """Report a comparison's progress; hold the lock file from its first replicate on, so that cases which start side by
    side are measured one after the other.
    """
    if turn is None:
        yield lambda *_: None
        return
    with turn.open("w") as file:
        calls = itertools.count()
        yield lambda *_: fcntl.flock(file, fcntl.LOCK_EX) if next(calls) else None  # the first only reports preparation


def run(case: Case, folder: Path, preset: Preset = PRESET, level: str = "auto", turn: Path | None = None) -> Outcome:
    """Compare in this process. A candidate that can bring down the harness also brings down the caller: see
    run_apart.
    """
    if missing := lacks(case):
        return Outcome(case.name, skipped=missing)
    begin = time.monotonic()
    options = Options(preset, "default", case.device, folder, level)
    try:
        with in_turn(turn) as report:
            result = compare(write(case, folder), options, report)
    except AispError as error:
        return Outcome(case.name, error=f"{error.code}: {error.message}", seconds=time.monotonic() - begin)
    seconds = time.monotonic() - begin
    if isinstance(result, Skip):
        return Outcome(case.name, skipped=result.missing, seconds=seconds)
    return Outcome(case.name, comparison=result.model_dump(mode="json"), seconds=seconds)


def run_apart(
    case: Case,
    folder: Path,
    deadline_s: float = DEADLINE_S,
    preset: Preset = PRESET,
    turn: Path | None = None,
    loaded: Path | None = None,
) -> Outcome:
    """Run a case in a separate process, so that whatever it does to the harness becomes an outcome.

    loaded: folder of processes that have loaded their libraries (comparison.keep_libraries_loaded).
    """
    level = usable_level("auto", case.device)  # determined once: on a GPU, each level starts the driver
    words = [case.name, case.device, str(folder), preset.name, level, str(turn or ""), str(loaded or "")]
    argv = [sys.executable, "-P", "-m", MODULE, *words]
    begin = time.monotonic()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(case.name, error=f"no verdict within {deadline_s:g} s", seconds=time.monotonic() - begin)
    if done.returncode == 0 and done.stdout.strip():
        return Outcome(**json.loads(done.stdout.splitlines()[-1]))
    last = (done.stderr.strip() or "no words").splitlines()[-1]
    error = f"the harness itself ended with {done.returncode}: {last[:300]}"
    return Outcome(case.name, error=error, seconds=time.monotonic() - begin)


def tried(case: Case, preset: Preset = PRESET, turn: Path | None = None, loaded: Path | None = None) -> dict[str, Any]:
    """Run a case and return its row. A gain in the single replicate of the fast preset may be noise, so it is measured
    again.
    """
    with tempfile.TemporaryDirectory(prefix="aisp-selftest-") as folder:
        evidence = row(case, run_apart(case, Path(folder), preset=preset, turn=turn, loaded=loaded))
    return tried(case, turn=turn, loaded=loaded) if evidence["found"] == "through" and preset is FAST else evidence


def side_by_side(
    some: Sequence[Item], at_once: int, work: Callable[[Item], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Return the rows of all cases, in order. Each thread, and every process it starts, has its own cores."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // at_once)
    groups = [cores[begin : begin + share] for begin in range(0, share * at_once, share)]

    def settle() -> None:
        os.sched_setaffinity(0, groups.pop() or cores)

    with ThreadPoolExecutor(at_once, initializer=settle) as pool:
        yield from pool.map(work, some)


def judge(case: Case, outcome: Outcome) -> Finding:
    """Judge the outcome of a case. An attack is stopped by the verdict invalid or incorrect, by a ratio no better than
    the truth, or by a flag that rejects its clock. An honest twin passes if its verdict is neither invalid nor
    incorrect. A run without a verdict is lost: an attack that merely destroys the measurement has also done harm.
    """
    if outcome.skipped is not None:
        return "skipped"
    if outcome.comparison is None:
        return "lost"
    ended = outcome.comparison["verdict"] in ("invalid", "incorrect")
    if case.kind == "honest":
        return "flagged wrongly" if ended else "passed"
    if ended or "clock_disagreement" in {flag["code"] for flag in outcome.comparison["flags"]}:
        return "stopped"
    return "through" if _gained(case, outcome.comparison) else "stopped"


def _gained(case: Case, comparison: dict[str, Any]) -> bool:
    """Return True if the reported ratio exceeds the truth by more than the clocks' tolerance, and by more than its
    interval.
    """
    ratio, interval = comparison["ratio"], comparison["interval"]
    if ratio is None or interval is None:
        return False
    faster = comparison["verdict"] == "faster" and ratio > ALLOWED_GAIN * case.truth
    return bool(faster or interval["low"] > ALLOWED_GAIN * case.truth or ratio > CERTAIN_GAIN * case.truth)


def row(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Build one line of evidence about a case. gained: the ratio exceeds the truth, whatever flags accompany it."""
    comparison = outcome.comparison or {}
    return {
        "case": case.name,
        "issue": case.issue,
        "kind": case.kind,
        "device": case.device,
        "found": judge(case, outcome),
        "gained": bool(comparison) and _gained(case, comparison),
        "verdict": comparison.get("verdict"),
        "ratio": comparison.get("ratio"),
        "interval": comparison.get("interval"),
        "clocks": comparison.get("clocks"),
        "flags": [f"{flag['code']}: {flag['message']}" for flag in comparison.get("flags", [])],
        "isolation": comparison.get("isolation"),
        "error": outcome.error or outcome.skipped,
        "seconds": round(outcome.seconds, 2),
    }


def recorded(rows: list[dict[str, Any]], device: str, preset: str) -> dict[str, Any]:
    """Build the document: the rows with date, device and versions."""
    environment = manifest.manifest()
    gpus = [gpu["name"] for gpu in environment["gpus"]] if device == "cuda" else []
    return {
        "what": f"attacks and their honest twins on device {device}, preset {preset}",
        "date": environment["at"][:10],
        "device": f"{len(gpus)} x {gpus[0]}" if gpus else f"{environment['host']['cpu']}, {os.cpu_count()} cores",
        "driver": environment["driver"],
        "torch": environment["software"]["torch"],
        "python": environment["software"]["python"],
        "kernel": environment["surroundings"]["kernel"],
        "isolation": isolation.probe().level,
        "rows": rows,
    }


def keep(path: Path | None, document: dict[str, Any]) -> None:
    """Write the rows so far, if a path is given: a time limit may end the run, also while it writes."""
    if path:
        partly = path.with_suffix(".part")
        partly.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        partly.replace(path)


def main() -> None:
    """Run one case and print its outcome as JSON."""
    name, device, folder, preset, level, turn, loaded = (*sys.argv[1:], "", "")[:7]
    with loaded_in(Path(loaded)) if loaded else nullcontext():
        case = replace(named(name), device=device)
        outcome = run(case, Path(folder), PRESETS[preset], level, Path(turn) if turn else None)
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
