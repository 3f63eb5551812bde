"""One run: its chart, its verdicts, and the evidence for each."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.judge.records.run import Run
from aisp_mcp.runs.export import chart, html
from aisp_mcp.store.records.ruling import RulingFilter

MAX_CHARTED = 60


def build(request: PageRequest) -> dict[str, Any]:
    """?id=. Raises NotFound UNKNOWN_RUN."""
    run = request.ctx.store.run(Run, request.word("id"), request.ctx.sees)
    before = _before(request, run.comparisons[0].target if run.comparisons else "", run.created_at)
    return {
        "run": run,
        "chart": chart.of_comparisons(run.comparisons[:MAX_CHARTED]) if run.comparisons else None,
        "charted": MAX_CHARTED,
        "evidence": [(comparison, html.sides(comparison)) for comparison in run.comparisons],
        "noise": html.noise(run),
        "before": before,
        "folder": request.ctx.store.run_dir(run.id),
    }


def _before(request: PageRequest, target: str, at: float) -> str | None:
    """Id of the latest earlier run that measured the same target."""
    chapter = target.partition(":")[0]
    rows, _ = request.ctx.store.list_rulings(RulingFilter(chapter=chapter), 200, None, request.ctx.sees)
    return next((row.run_id for row in rows if row.created_at < at and row.target.startswith(target)), None)
