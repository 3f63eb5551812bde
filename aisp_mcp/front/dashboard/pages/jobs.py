"""Queued, running and ended jobs, newest first."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, listed
from aisp_mcp.store.records.job import JobState

PAGE = 50


def build(request: PageRequest) -> dict[str, Any]:
    """?state=, ?cursor=."""
    state, cursor, ctx = request.word("state"), request.word("cursor"), request.ctx
    chosen = JobState(state) if state in list(JobState) else None
    rows, more = ctx.store.list_jobs(chosen, None, PAGE, int(cursor) if cursor.isdecimal() else None, ctx.sees)
    states = Counter(job.state for job in rows)
    known = listed(f"{states[state]} {state.value}" for state in JobState if states[state])
    newest = "The newest " if more else ""
    return {
        "lead": f"{newest}{count(len(rows), 'job')}: {known}." if rows else "",
        "rows": rows,
        "more": more,
        "state": chosen.value if chosen else "",
        "states": list(JobState),
    }
