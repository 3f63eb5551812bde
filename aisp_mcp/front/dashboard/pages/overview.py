"""Machine status, active jobs, the latest verdicts, and targets that got slower."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.runs.changes.worse import worse
from aisp_mcp.store.records.job import JobState
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow

SHOWN, EXAMINED = 12, 1000


def build(request: PageRequest) -> dict[str, Any]:
    ctx = request.ctx
    rows, _ = ctx.store.list_verdicts(VerdictFilter(), EXAMINED, None, ctx.sees)
    falls = worse(ctx, rows)
    active = [job for state in (JobState.RUNNING, JobState.QUEUED) for job in ctx.store.list_jobs(state, limit=20)[0]]
    return {
        "machine": request.tool("aisp_status"),
        "active": active,
        "rows": rows[:SHOWN],
        "drawing": figures.of_verdicts(_newest(rows)[:SHOWN]),
        "counts": ctx.store.count_verdicts(VerdictFilter(), ctx.sees),
        "worse": [(fall.now, fall.then) for fall in falls if fall.proven],
        "not_judged": [fall for fall in falls if not fall.proven],
        "examined": EXAMINED,
    }


def _newest(rows: list[VerdictRow]) -> list[VerdictRow]:
    """The newest verdict of each target."""
    newest: dict[str, VerdictRow] = {}
    for row in rows:
        newest.setdefault(row.target, row)
    return list(newest.values())
