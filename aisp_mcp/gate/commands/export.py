"""Results of command lines as hyperfine writes them, for tools that read its files."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.gate.commands.records import CommandComparison, CommandSide, ScanPoint
from aisp_mcp.server import files

_Shown = CommandComparison | ScanPoint


def write(data: bytes, path: str, allowed: Sequence[Path]) -> str:
    """Write a file where the caller wants it. Raises Refused OUTSIDE_ROOTS, UsageError NO_FOLDER."""
    return files.write(files.destination(path, Path(path), allowed), data).path


def to_json(found: CommandComparison) -> bytes:
    """hyperfine's JSON: an entry per command and value of the parameter, seconds, with all times."""
    results = [_entry(side, found.parameter, point) for point in _points(found) for side in _sides(point)]
    return (json.dumps({"results": results}, indent=2) + "\n").encode()


def _points(found: CommandComparison) -> Sequence[_Shown]:
    return found.scan or [found]


def _sides(point: _Shown) -> Iterator[CommandSide]:
    yield from (side for side in (point.baseline, point.candidate) if side is not None)


def _entry(side: CommandSide, parameter: str | None, point: _Shown) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "command": shlex.join(side.argv),
        "mean": statistics.fmean(side.seconds),
        "stddev": statistics.stdev(side.seconds) if len(side.seconds) > 1 else None,
        "median": side.median_s,
        "user": side.user_s,
        "system": max(side.cpu_s - side.user_s, 0.0),
        "min": side.min_s,
        "max": side.max_s,
        "times": side.seconds,
        "exit_codes": [0] * len(side.seconds),  # a run with another code ends the comparison
    }
    if parameter is not None and isinstance(point, ScanPoint):
        entry["parameters"] = {parameter: str(point.value)}
    return entry


def to_markdown(found: CommandComparison) -> bytes:
    """A table with hyperfine's columns, and the verdict of each candidate."""
    lines = ["| Command | Mean [ms] | Min [ms] | Max [ms] | Relative | Verdict |", "|:---|---:|---:|---:|---:|:---|"]
    for point in _points(found):
        sides = list(_sides(point))
        fastest = min((statistics.fmean(side.seconds) for side in sides), default=0.0)
        for side in sides:
            verdict = point.sentence if side is point.candidate else ""
            lines.append(_row(side, fastest, verdict))
    return ("\n".join(lines) + "\n").encode()


def _row(side: CommandSide, fastest: float, verdict: str) -> str:
    mean = statistics.fmean(side.seconds)
    scatter = statistics.stdev(side.seconds) if len(side.seconds) > 1 else 0.0
    command = shlex.join(side.argv).replace("|", "\\|")
    times = f"{1e3 * mean:.1f} ± {1e3 * scatter:.1f} | {1e3 * side.min_s:.1f} | {1e3 * side.max_s:.1f}"
    return f"| `{command}` | {times} | {mean / fastest:.2f} | {verdict} |"
