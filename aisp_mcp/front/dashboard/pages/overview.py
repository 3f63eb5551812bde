"""Machine status, active jobs, the latest verdicts, and targets that got slower."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, summed
from aisp_mcp.runs.changes.worse import worse
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.verdict_row import ANY_KIND, VerdictFilter

SHOWN, EXAMINED = 12, 1000


def build(request: PageRequest) -> dict[str, Any]:
    ctx = request.ctx
    rows, _ = ctx.store.list_verdicts(VerdictFilter(), EXAMINED, None, ctx.sees)
    falls = worse(ctx, rows)
    active = [job for state in (JobState.RUNNING, JobState.QUEUED) for job in ctx.store.list_jobs(state, limit=20)[0]]
    latest, _ = ctx.store.list_verdicts(VerdictFilter(kinds=ANY_KIND), SHOWN, None, ctx.sees)
    counts = ctx.store.count_verdicts(VerdictFilter(kinds=ANY_KIND), ctx.sees)
    proven = [fall for fall in falls if fall.proven]
    return {
        "lead": _lead(counts, len(proven), active),
        "machine": request.tool("aisp_status"),
        "active": active,
        "rows": latest,
        "drawing": figures.of_counts(counts),
        "counts": counts,
        "worse": [(fall.now, fall.then) for fall in proven],
        "not_judged": [fall for fall in falls if not fall.proven],
        "examined": EXAMINED,
    }


def _lead(counts: dict[str, int], falls: int, active: list[Job]) -> str:
    """The state of everything in a sentence or two."""
    if not counts:
        return "Nothing has been measured yet."
    measured = f"{count(sum(counts.values()), 'verdict')}: {summed(counts)}."
    trend = f"{count(falls, 'target')} got worse" if falls else "No target got worse"
    jobs = f"{count(len(active), 'job')} running or queued" if active else "no job is running"
    return f"{measured} {trend}; {jobs}."
