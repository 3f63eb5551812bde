"""The final section of a session's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aisp_mcp.front.cli.format import seconds
from aisp_mcp.front.pytest_plugin.verdicts import MISSING, NOT_JUDGED, Row

_COLOURS = {"faster": "green", "slower": "red", "incorrect": "red", "invalid": "red", "missing": "red", "same": "cyan"}


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
    judged = sum(row.verdict not in (NOT_JUDGED, MISSING) for row in rows)
    missing = sum(row.verdict == MISSING for row in rows)
    slower = sum(row.fails and row.verdict != MISSING for row in rows)
    words = f", {missing} missing" if missing else ""
    reporter.write_line(f"{judged} of {len(rows)} benchmarks measured, {slower} slower{words}")
