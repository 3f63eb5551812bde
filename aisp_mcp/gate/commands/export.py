"""Results of command lines in hyperfine's formats, for tools that read its files."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.gate.commands.records import CommandComparison, CommandFigures, ScanPoint
from aisp_mcp.server import files

_Shown = CommandComparison | ScanPoint


def write(data: bytes, path: str, allowed: Sequence[Path]) -> str:
    """Write a file where the caller wants it. Raises Refused OUTSIDE_ROOTS, UsageError NO_FOLDER."""
    return files.write(files.destination(path, Path(path), allowed), data).path


def to_json(comparison: CommandComparison) -> bytes:
    """hyperfine's JSON: an entry per command and value of the parameter, seconds, with all times."""
    results = [
        _entry(figures, comparison.parameter, point) for point in _points(comparison) for figures in _all_figures(point)
    ]
    return (json.dumps({"results": results}, indent=2) + "\n").encode()


def _points(comparison: CommandComparison) -> Sequence[_Shown]:
    return comparison.scan or [comparison]


def _all_figures(point: _Shown) -> Iterator[CommandFigures]:
    yield from (figures for figures in (point.baseline, point.candidate) if figures is not None)


def _entry(figures: CommandFigures, parameter: str | None, point: _Shown) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "command": shlex.join(figures.argv),
        "mean": statistics.fmean(figures.seconds),
        "stddev": statistics.stdev(figures.seconds) if len(figures.seconds) > 1 else None,
        "median": figures.median_s,
        "user": figures.user_s,
        "system": max(figures.cpu_s - figures.user_s, 0.0),
        "min": figures.min_s,
        "max": figures.max_s,
        "times": figures.seconds,
        "exit_codes": [0] * len(figures.seconds),  # a run with any other code ends the comparison
    }
    if parameter is not None and isinstance(point, ScanPoint):
        entry["parameters"] = {parameter: str(point.value)}
    return entry


def to_markdown(comparison: CommandComparison) -> bytes:
    """A table with hyperfine's columns, and the verdict of each candidate."""
    lines = ["| Command | Mean [ms] | Min [ms] | Max [ms] | Relative | Verdict |", "|:---|---:|---:|---:|---:|:---|"]
    for point in _points(comparison):
        all_figures = list(_all_figures(point))
        fastest = min((statistics.fmean(figures.seconds) for figures in all_figures), default=0.0)
        for figures in all_figures:
            verdict = point.sentence if figures is point.candidate else ""
            lines.append(_row(figures, fastest, verdict))
    return ("\n".join(lines) + "\n").encode()


def _row(figures: CommandFigures, fastest: float, verdict: str) -> str:
    mean = statistics.fmean(figures.seconds)
    scatter = statistics.stdev(figures.seconds) if len(figures.seconds) > 1 else 0.0
    command = shlex.join(figures.argv).replace("|", "\\|")
    times = f"{1e3 * mean:.1f} ± {1e3 * scatter:.1f} | {1e3 * figures.min_s:.1f} | {1e3 * figures.max_s:.1f}"
    return f"| `{command}` | {times} | {mean / fastest:.2f} | {verdict} |"
