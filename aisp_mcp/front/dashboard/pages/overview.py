"""Machine status, active jobs, the latest verdicts, and targets that got slower."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, summed
from aisp_mcp.runs.segments import segments
from aisp_mcp.store.records.job import Job, JobState
from aisp_mcp.store.records.verdict_row import VerdictFilter, VerdictRow

SHOWN, EXAMINED, LEVELS = 12, 1000, 60


def build(request: PageRequest) -> dict[str, Any]:
    ctx = request.ctx
    rows, _ = ctx.store.list_verdicts(VerdictFilter(), EXAMINED, None, ctx.sees)
    active = [job for state in (JobState.RUNNING, JobState.QUEUED) for job in ctx.store.list_jobs(state, limit=20)[0]]
    counts, falls = ctx.store.count_verdicts(VerdictFilter(), ctx.sees), worse(rows)
    return {
        "lead": _lead(counts, falls, active),
        "machine": request.tool("aisp_status"),
        "active": active,
        "rows": rows[:SHOWN],
        "drawing": figures.of_counts(counts),
        "counts": counts,
        "worse": falls,
        "examined": EXAMINED,
    }


def _lead(counts: dict[str, int], falls: list[Any], active: list[Job]) -> str:
    """The state of everything in a sentence or two."""
    if not counts:
        return "Nothing has been measured yet."
    measured = f"{count(sum(counts.values()), 'verdict')}: {summed(counts)}."
    trend = f"{count(len(falls), 'target')} got worse" if falls else "No target got worse"
    jobs = f"{count(len(active), 'job')} running or queued" if active else "no job is running"
    return f"{measured} {trend}; {jobs}."


def worse(rows: list[VerdictRow]) -> list[tuple[VerdictRow, VerdictRow]]:
    """(newest, earlier) verdicts of targets whose ratio fell, the largest fall first. rows: newest first.

    earlier: the last verdict of the previous level, or else the previous verdict. The intervals do not overlap.
    """
    series: dict[tuple[str, str | None, str], list[VerdictRow]] = {}
    for row in reversed(rows):
        if row.ratio and row.low and row.high:
            series.setdefault((row.target, row.device, row.preset), []).append(row)
    pairs = [(verdicts[-1], _earlier(verdicts)) for verdicts in series.values() if len(verdicts) > 1]
    falls = [(now, then) for now, then in pairs if (now.high or 0.0) < (then.low or 0.0)]
    return sorted(falls, key=lambda pair: (pair[0].ratio or 0.0) / (pair[1].ratio or 1.0))


def _earlier(verdicts: list[VerdictRow]) -> VerdictRow:
    recent = verdicts[-LEVELS:]
    levels = segments([row.ratio or 0.0 for row in recent])
    return recent[levels[-2][1] - 1 if len(levels) > 1 else -2]
