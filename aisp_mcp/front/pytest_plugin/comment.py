"""The session's verdicts as a pull request comment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.front.pytest_plugin.verdicts import MISSING, NOT_JUDGED, Row
from aisp_mcp.gate import policy
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.export import outcomes
from aisp_mcp.runs.export.comment import Page, marker, title
from aisp_mcp.runs.export.comment import write as write_page
from aisp_mcp.runs.export.outcomes import State


def write(path: Path, rows: Sequence[Row], base: str) -> None:
    """Write GitHub-flavoured Markdown of at most 65,536 characters."""
    lines = [_row(row) for row in rows]
    heading = title("Performance gate", not any(row.fails for row in rows), lines)
    page = Page([marker("pytest"), heading, ""], ["", f"Against {base}, measured interleaved."], "base / head")
    path.write_text(write_page(page, [(line, _note(row)) for line, row in zip(lines, rows, strict=True)]), "utf-8")


def _row(row: Row) -> outcomes.Row:
    if row.figures is None:
        state = State.FAILED if row.fails else State.UNJUDGED
        return outcomes.Row(row.name, state, row.verdict if row.verdict == MISSING else "could not judge", row.sentence)
    figures, interval = row.figures, row.figures.interval
    state = State.FAILED if row.fails else outcomes.VERDICTS[Verdict(row.verdict)]
    low, high = (interval.low, interval.high) if interval else (None, None)
    return outcomes.Row(row.name, state, str(row.verdict), row.sentence, figures.ratio, low, high, figures.noise_floor)


def _note(row: Row) -> str:
    if row.verdict == NOT_JUDGED or row.figures is None:
        return ""
    resolution = policy.resolution(row.figures.ratio, row.figures.interval, row.figures.noise_floor)
    notes = [] if resolution is None else [policy.resolution_words(resolution)]
    return "".join(f"; {text}" for text in (*notes, *row.notes))
