"""Two runs compared: the change of each target with its interval, missing targets, and how the machines differ."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.runs.changes.worse import comparable
from aisp_mcp.server.charts import answers
from aisp_mcp.store.records.verdict_row import VerdictFilter


def build(request: PageRequest) -> dict[str, Any]:
    """?before=&after=, ids of runs; by default the newest two of one kind and preset that share a target."""
    rows, _ = request.ctx.store.list_verdicts(VerdictFilter(), 200, None, request.ctx.sees)
    recent = list(dict.fromkeys(row.run_id for row in rows))[:40]
    newest = comparable(rows) or ("", "")
    before, after = request.word("before") or newest[0], request.word("after") or newest[1]
    both = bool(before and after)
    answer = request.tool("aisp_benchmark_compare_runs", baseline_run=before, candidate_run=after) if both else None
    drawings = answers.draw("changes", answer.result) if answer and answer.result else []
    return {"before": before, "after": after, "recent": recent, "answer": answer, "drawings": drawings}
