"""One run: its chart, its verdicts, and the evidence for each."""

from __future__ import annotations

from typing import Any

from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.judge.records.run import Run
from aisp_mcp.runs.export import chart, html
from aisp_mcp.store.records.verdict_row import VerdictFilter

SHOWN = 60


def build(asked: Asked) -> dict[str, Any]:
    """?id=. Raises NotFound UNKNOWN_RUN."""
    run = asked.ctx.store.run(Run, asked.word("id"), asked.ctx.sees)
    before = _before(asked, run.comparisons[0].target if run.comparisons else "", run.created_at)
    return {
        "run": run,
        "chart": chart.of_comparisons(run.comparisons[:SHOWN]) if run.comparisons else None,
        "charted": SHOWN,
        "evidence": [(one, html.sides(one)) for one in run.comparisons],
        "noise": html.noise(run),
        "before": before,
        "folder": asked.ctx.store.run_dir(run.id),
    }


def _before(asked: Asked, target: str, at: float) -> str | None:
    """The run that measured the same target last before this one."""
    chapter = target.partition(":")[0]
    rows, _ = asked.ctx.store.list_verdicts(VerdictFilter(chapter=chapter), 200, None, asked.ctx.sees)
    return next((row.run_id for row in rows if row.created_at < at and row.target.startswith(target)), None)
