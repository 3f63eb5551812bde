"""One job: its state, the end of its output, and its answer."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.request import Answer, PageRequest
from aisp_mcp.front.rest.lists import PROFILING
from aisp_mcp.server.charts import answers
from aisp_mcp.server.registry import get, names

TAIL = 8000


def build(request: PageRequest) -> dict[str, Any]:
    """?id=. Raises NotFound UNKNOWN_JOB."""
    job = request.ctx.jobs.get(request.word("id"), request.ctx.sees)
    envelope = job.envelope or {}
    result = envelope.get("result") if isinstance(envelope.get("result"), dict) else None
    chart = get(job.tool).chart if job.tool in names() else None
    chart = None if chart == "job" else chart  # a tool that shows another job's answer
    return {
        "job": job,
        "log": request.ctx.jobs.log_tail(job.id, TAIL),
        "answer": Answer(job.tool, result, envelope.get("error")) if envelope else None,
        "drawings": answers.draw(chart, result) if chart and result else [],
        "run_id": (result or {}).get("run_id"),
        "profile": job.tool in PROFILING and result is not None,
    }
