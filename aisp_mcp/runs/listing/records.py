"""Stored runs in lines."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class RunLine(Record):
    """One stored run in a line. kind: bench, or the subject of its verdicts. verdicts: the number of each."""

    run_id: str
    name: str = ""
    created_at: float
    kind: str
    targets: str
    verdicts: str
    preset: str
    tags: list[str] = Field(default_factory=list)
    note: str = ""


class RunPage(Record):
    """Runs, newest first. next_cursor: pass it as cursor to read on; null at the end."""

    sentence: str
    runs: list[RunLine]
    next_cursor: str | None = None
