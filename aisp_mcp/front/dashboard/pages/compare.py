"""Two runs side by side: each target's change with its interval, the flame graphs' difference, and the machines'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aisp_mcp.front.dashboard import traces
from aisp_mcp.front.dashboard.pages import profiles
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, ordered, summed
from aisp_mcp.runs.changes.worse import comparable
from aisp_mcp.server.charts import answers
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.verdict_row import ANY_KIND, OF_TARGETS, RunKind, VerdictFilter, VerdictRow


def build(request: PageRequest) -> dict[str, Any]:
    """?before=&after=, runs, by default the newest two of one kind that share a target, or none; ?target= of the
    flame graphs.
    """
    rows, _ = request.ctx.store.list_verdicts(VerdictFilter(kinds=ANY_KIND), 400, None, request.ctx.sees)
    recent = _recent(rows)
    newest = comparable(rows) or ("", "")
    before, after = request.word("before") or newest[0], request.word("after") or newest[1]
    both = bool(before and after)
    answer = request.tool("aisp_benchmark_compare_runs", baseline=before, candidate=after) if both else None
    result = answer.result if answer else None
    profiled = profiles.of_runs(request.ctx, before, after) if result else {}
    target = request.word("target") if request.word("target") in profiled else next(iter(profiled), "")
    return {
        "lead": _lead(result) if result else "" if both or len(recent) < 2 else "No two stored runs share a target.",
        "before": before,
        "after": after,
        "recent": recent,
        "suite": next((row.target for row in rows if row.kind is RunKind.BENCH), ""),
        "answer": answer,
        "drawings": answers.draw("changes", result) if result else [],
        "profiled": profiled,
        "target": target,
        "flames": traces.difference(request.ctx, *profiled[target]) if target else None,
    }


def _recent(rows: list[VerdictRow]) -> dict[str, str]:
    """Runs with a line about each, newest first."""
    lines = dict[str, str]()
    targets = Counter(row.run_id for row in rows)
    for row in rows:
        more = f" and {targets[row.run_id] - 1} more" if targets[row.run_id] > 1 else ""
        kind = "" if row.kind in OF_TARGETS else f"{row.kind.value} of "
        lines.setdefault(row.run_id, f"{numbers.moment(row.created_at)[:16]}, {row.preset}: {kind}{row.target}{more}")
    return dict(list(lines.items())[:40])


def _lead(result: Mapping[str, Any]) -> str:
    """The comparison's own sentence, or the number of changes."""
    if isinstance(result.get("sentence"), str):
        sentence = str(result["sentence"])
        return f"{sentence[:1].upper()}{sentence[1:]}."
    counts = ordered(Counter(change["verdict"] for change in result["changes"]))
    missing = len(result.get("missing") or [])
    text = (
        f"{count(sum(counts.values()), 'target')} in both runs: {summed(counts)}."
        if counts
        else "The runs have no target in common."
    )
    return f"{text} {count(missing, 'target')} in one run only." if missing else text
