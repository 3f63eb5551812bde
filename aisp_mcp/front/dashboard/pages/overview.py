"""The machine in a line, jobs as they run, the last verdicts, and what got worse."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.runs.segments import segments
from aisp_mcp.store.records.job import JobState
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow

LAST, LOOKED_AT, LEVELS = 12, 1000, 60


def build(asked: Asked) -> dict[str, Any]:
    ctx = asked.ctx
    rows, _ = ctx.store.list_verdicts(VerdictFilter(), LOOKED_AT, None, ctx.sees)
    active = [job for state in (JobState.RUNNING, JobState.QUEUED) for job in ctx.store.list_jobs(state, limit=20)[0]]
    return {
        "machine": asked.tool("aisp_status"),
        "active": active,
        "rows": rows[:LAST],
        "drawing": figures.of_rulings(_newest(rows)[:LAST]),
        "counts": ctx.store.count_verdicts(VerdictFilter(), ctx.sees),
        "worse": worse(rows),
        "looked_at": LOOKED_AT,
    }


def _newest(rows: list[VerdictRow]) -> list[VerdictRow]:
    """The newest verdict of each target."""
    found: dict[str, VerdictRow] = {}
    for row in rows:
        found.setdefault(row.target, row)
    return list(found.values())


def worse(rows: list[VerdictRow]) -> list[tuple[VerdictRow, VerdictRow]]:
    """(newest, earlier) of targets whose ratio fell, the largest fall first. rows: newest first.

    earlier: the last verdict of the level before, or simply the one before; both intervals lie apart.
    """
    series: dict[tuple[str, str | None, str], list[VerdictRow]] = {}
    for row in reversed(rows):
        if row.ratio and row.low and row.high:
            series.setdefault((row.target, row.device, row.preset), []).append(row)
    pairs = [(found[-1], _earlier(found)) for found in series.values() if len(found) > 1]
    fell = [(now, then) for now, then in pairs if (now.high or 0.0) < (then.low or 0.0)]
    return sorted(fell, key=lambda pair: (pair[0].ratio or 0.0) / (pair[1].ratio or 1.0))


def _earlier(found: list[VerdictRow]) -> VerdictRow:
    levels = segments([row.ratio or 0.0 for row in found[-LEVELS:]])
    before = levels[-2][1] - 1 if len(levels) > 1 else -2
    return found[-LEVELS:][before]
