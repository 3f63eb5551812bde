"""A session's verdicts as the final section of its output, and as a pull request comment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aisp_mcp.front.cli.format import seconds
from aisp_mcp.front.pytest_plugin.verdicts import MEASURED, MISSING, NOT_JUDGED, BenchmarkRow
from aisp_mcp.gate import policy
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.export import outcomes
from aisp_mcp.runs.export.comment import Page, marker, title
from aisp_mcp.runs.export.comment import write as write_page
from aisp_mcp.runs.export.outcomes import State
from aisp_mcp.system import cpu

_COLOURS = {"faster": "green", "slower": "red", "incorrect": "red", "invalid": "red", "missing": "red", "same": "cyan"}


def write_summary(reporter: Any, rows: Sequence[BenchmarkRow]) -> None:
    """Print verdict, times and reasons of each benchmark."""
    reporter.section("aisp verdicts")
    for row in rows:
        times = " → ".join(map(seconds, row.seconds))
        colour = _COLOURS.get(row.verdict)
        reporter.write(f"{row.verdict:<12} ", **({colour: True} if colour else {}))
        reporter.write_line("  ".join(part for part in (row.name, times) if part))
        for text in (row.sentence, *row.notes):
            reporter.write_line(f"{'':13}{text}")
    if rows and all(row.verdict in (MEASURED, NOT_JUDGED) for row in rows):
        reporter.write_line(f"measured {sum(row.verdict == MEASURED for row in rows)} of {len(rows)}")
        return
    missing = sum(row.verdict == MISSING for row in rows)
    slower = sum(row.fails and row.verdict != MISSING for row in rows)
    counts = [f"judged {judged(rows)} of {len(rows)}", *([f"{slower} slower"] if judged(rows) else [])]
    counts += [f"{missing} missing"] if missing else []
    why = cpu.load_words() if judged(rows) < len(rows) else ""
    reporter.write_line(f"{', '.join(counts)}{why}")


def judged(rows: Sequence[BenchmarkRow]) -> int:
    """The number of benchmarks with a verdict that is not open."""
    return sum(row.verdict not in (NOT_JUDGED, MISSING, Verdict.INCONCLUSIVE) for row in rows)


def write_comment(path: Path, rows: Sequence[BenchmarkRow], base: str) -> None:
    """Write GitHub-flavoured Markdown of at most 65,536 characters."""
    lines = [_row(row) for row in rows]
    heading = title("Performance gate", not any(row.fails for row in rows), lines)
    page = Page([marker("pytest"), heading, ""], ["", f"Against {base}, measured interleaved."], "base / head")
    path.write_text(write_page(page, [(line, _note(row)) for line, row in zip(lines, rows, strict=True)]), "utf-8")


def _row(row: BenchmarkRow) -> outcomes.Row:
    if row.figures is None:
        state = State.FAILED if row.fails else State.UNJUDGED
        return outcomes.Row(row.name, state, row.verdict if row.verdict == MISSING else "could not judge", row.sentence)
    figures, interval = row.figures, row.figures.interval
    state = State.FAILED if row.fails else outcomes.VERDICTS[Verdict(row.verdict)]
    low, high = (interval.low, interval.high) if interval else (None, None)
    return outcomes.Row(row.name, state, str(row.verdict), row.sentence, figures.ratio, low, high, figures.noise_floor)


def _note(row: BenchmarkRow) -> str:
    if row.verdict == NOT_JUDGED or row.figures is None:
        return ""
    resolution = policy.resolution(row.figures.ratio, row.figures.interval, row.figures.noise_floor)
    notes = [] if resolution is None else [policy.resolution_words(resolution)]
    return "".join(f"; {text}" for text in (*notes, *row.notes))
