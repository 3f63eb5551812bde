"""The final section of a session's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aisp_mcp.front.cli.format import seconds
from aisp_mcp.front.pytest_plugin.verdicts import NOT_JUDGED, Row

_COLOURS = {"faster": "green", "slower": "red", "incorrect": "red", "invalid": "red", "same": "cyan"}


def write(reporter: Any, rows: Sequence[Row]) -> None:
    """Print verdict, times and reasons of each benchmark."""
    reporter.section("aisp verdicts")
    for row in rows:
        times = " → ".join(map(seconds, row.seconds))
        colour = _COLOURS.get(row.verdict)
        reporter.write(f"{row.verdict:<12} ", **({colour: True} if colour else {}))
        reporter.write_line("  ".join(part for part in (row.name, times) if part))
        for text in (row.sentence, *row.notes):
            reporter.write_line(f"{'':13}{text}")
    judged = sum(row.verdict != NOT_JUDGED for row in rows)
    failing = sum(row.fails for row in rows)
    reporter.write_line(f"{judged} of {len(rows)} benchmarks measured, {failing} slower")
