"""Expectations that a run contradicts, rewritten with the run's figures as their source."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.records import Record
from aisp_mcp.server import files
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites import expectations
from aisp_mcp.suites.discovery import find_targets
from aisp_mcp.suites.expectations import words_of
from aisp_mcp.suites.records import Direction, Expectation, Expected, Grade

_DECIDED: tuple[Direction, ...] = ("faster", "same", "slower")
SLACK = 1.2  # slack for other machines of the class, beyond the measured interval


class Rewritten(Record):
    """One entry before and after."""

    candidate: str
    path: str
    before: str
    after: str


def graded(ctx: Context, run: Run, roots: Sequence[str] | None, rewrite: bool) -> tuple[list[Grade], list[Rewritten]]:
    """Grades of a run and, with rewrite, the entries that it contradicted. Raises Refused OUTSIDE_ROOTS."""
    entries = expectations.load(find_targets(ctx.bench_roots(roots)))
    grades = expectations.grade(run, entries)
    return grades, accept(ctx, run, grades, entries) if rewrite else []


def require_writable(ctx: Context, roots: Sequence[str] | None, labels: Sequence[str]) -> None:
    """Refuse before a measurement what accept() would refuse after it. labels: candidates. Raises as accept()."""
    for entry in expectations.load(find_targets(ctx.bench_roots(roots))):
        if entry.candidate in labels:
            files.destination(entry.path, Path(entry.path), ctx.allow_write)


def accept(ctx: Context, run: Run, grades: list[Grade], entries: list[Expectation]) -> list[Rewritten]:
    """Rewrite contradicted entries. The verdicts incorrect and invalid are not regressions and change nothing; neither
    do provisional ones, because one replicate is not a source.

    Raises Refused OUTSIDE_ROOTS for a file in a folder that was not opened for writing.
    """
    by_key = {(entry.candidate, entry.device): entry for entry in entries}
    changed = []
    provisional = {comparison.label for comparison in run.comparisons if run.is_provisional(comparison)}
    for grade in grades:
        if grade.candidate in provisional:
            continue
        if grade.mark != "contradicted" or grade.verdict not in _DECIDED or grade.device is None:
            continue
        entry = by_key[(grade.candidate, grade.device)]
        path = files.destination(entry.path, Path(entry.path), ctx.allow_write)
        after = _line(grade.device, _measured(run, grade))
        before, text = _replaced(path.read_text("utf-8"), grade.candidate.partition(":")[2], grade.device, after)
        files.write(path, text.encode())
        changed.append(Rewritten(candidate=grade.candidate, path=str(path), before=before.strip(), after=after.strip()))
    return changed


def _measured(run: Run, grade: Grade) -> Expected:
    """The verdict as an entry; the range is the interval with slack."""
    date = time.strftime("%Y-%m-%d", time.gmtime(run.created_at))
    source = f"measured, {_device(run)}, {date}, preset {run.preset}, run {run.id}"
    direction = next(word for word in _DECIDED if word == grade.verdict)
    return Expected(direction=direction, range=_bounds(grade.interval, direction), source=source)


def _bounds(interval: list[float], direction: Direction) -> tuple[float, float] | None:
    """The interval with slack, clipped at 1 to keep its direction."""
    if not interval:
        return None
    low, high = interval[0] / SLACK, interval[1] * SLACK
    low = max(low, 1.0) if direction == "faster" else low
    high = min(high, 1.0) if direction == "slower" else high
    return float(f"{low:.3g}"), float(f"{high:.3g}")


def _device(run: Run) -> str:
    if run.gpus:
        return str(run.gpus[0].get("name"))
    amx = ", AMX" if "amx_bf16" in words_of(run) else ""
    return f"{run.host.get('usable')} cores of {run.host.get('cpu')}{amx}"


def _line(device: str, entry: Expected) -> str:
    bounds = f"range: [{entry.range[0]:g}, {entry.range[1]:g}], " if entry.range else ""
    return f'  {device}: {{direction: {entry.direction}, {bounds}source: "{entry.source}"}}'


def _replaced(text: str, name: str, device: str, line: str) -> tuple[str, str]:
    """(the old line, the text with the new one): comments and the order of entries are preserved."""
    lines = text.split("\n")
    begin = next(i for i, old in enumerate(lines) if re.match(rf"{re.escape(name)}\s*:", old))
    for i in range(begin + 1, len(lines)):
        if re.match(rf"\s+['\"]?{re.escape(device)}['\"]?\s*:", lines[i]):
            old, lines[i] = lines[i], line
            return old, "\n".join(lines)
    raise ValueError(f"{name} has no line for {device}")  # load() found it, so the file has changed meanwhile
