"""Stored baselines: times of an earlier session on the same machine.

They were measured at another time, so only a slowdown larger than the difference between two sessions counts;
`--aisp-base` measures both commits interleaved and resolves far more.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.front.pytest_plugin.verdicts import NOT_JUDGED, BenchmarkRow
from aisp_mcp.gate.workloads.rounds import BenchmarkReplicate
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.verdict.verdict import judge as judge_ratios
from aisp_mcp.records import Record
from aisp_mcp.system import cpu

FOLDER = ".aisp"
MIN_MARGIN = 0.10  # two sessions on an idle machine differ by less
MAX_LOAD_CHANGE = 0.5  # of the load average, per core


class Times(Record):
    """One benchmark: seconds per call and A/A log-ratio of each replicate."""

    seconds: list[float]
    noise: list[float]


class Baseline(Record):
    """One session. load: load average per core when it ended."""

    machine: dict[str, Any]
    load: float
    benchmarks: dict[str, Times] = Field(default_factory=dict)


def save(root: Path, name: str, measured: Mapping[str, Sequence[BenchmarkReplicate | str]]) -> None:
    """Write the session's times to .aisp/NAME.json below the root folder."""
    times = {}
    for benchmark, rows in measured.items():
        good = [row for row in rows if isinstance(row, BenchmarkReplicate)]
        if good and len(good) == len(rows):
            seconds = [row.seconds[Role.CANDIDATE] for row in good]
            times[benchmark] = Times(seconds=seconds, noise=[row.noise for row in good])
    path = _path(root, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(Baseline(machine=_machine(), load=_load(), benchmarks=times).model_dump_json(indent=1) + "\n")


def load(root: Path, name: str) -> Baseline:
    """A stored baseline. Raises NotFound NO_BASELINE, BenchmarkError UNREADABLE, UsageError BAD_NAME."""
    path = _path(root, name)
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.json"))) or "none"
        raise NotFound("NO_BASELINE", f"There is no {path}.", f"Store one with --aisp-save={name}. Stored: {known}.")
    try:
        return Baseline.model_validate(json.loads(path.read_text("utf-8")))
    except (ValueError, ValidationError):
        raise BenchmarkError("UNREADABLE", f"{path} is not a stored baseline.", "Store it again.") from None


def _path(root: Path, name: str) -> Path:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UsageError("BAD_NAME", f"{name[:60]!r} cannot name a baseline.", "Use letters, digits, . and -.")
    return root / FOLDER / f"{name}.json"


def judge(name: str, rows: Sequence[BenchmarkReplicate | str], before: Baseline, margin: float | None) -> BenchmarkRow:
    """One benchmark against its stored times."""
    problem = next((row for row in rows if isinstance(row, str)), None)
    times = before.benchmarks.get(name)
    good = [row for row in rows if isinstance(row, BenchmarkReplicate)]
    if problem or times is None or not good:
        return BenchmarkRow(name, NOT_JUDGED, problem or "the stored baseline has no such benchmark")
    now = [row.seconds[Role.CANDIDATE] for row in good]
    medians = statistics.median(times.seconds), statistics.median(now)
    middle = math.log(medians[0])
    count = min(len(now), len(times.seconds))
    ratios = [math.log(old) - math.log(new) for old, new in zip(times.seconds, now, strict=False)]
    # Replicates of two sessions are not paired: the earlier session's own scatter is noise as well.
    noise = [max(own.noise, math.log(old) - middle, key=abs) for own, old in zip(good, times.seconds, strict=False)]
    outcome = judge_ratios(ratios[:count], noise[:count], margin=max(margin or 0.0, MIN_MARGIN))
    note = ("measured at another time: --aisp-base resolves more",)
    return BenchmarkRow(name, outcome.verdict, outcome.sentence, medians, outcome.verdict is Verdict.SLOWER, note)


def incomparable(before: Baseline) -> str:
    """Reason why that session's times cannot be compared with this one's; empty if they can."""
    now = _machine()
    different = [key for key in sorted({*now, *before.machine}) if now.get(key) != before.machine.get(key)]
    if different:
        return f"could not judge: the baseline was stored with another {', '.join(different)}"
    if abs(_load() - before.load) > MAX_LOAD_CHANGE:
        return f"could not judge: the load per core was {before.load:.2g} then and is {_load():.2g} now"
    return ""


def _machine() -> dict[str, Any]:
    return {"processor": cpu.read().model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}


def _load() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1)
