"""One run: its chart, its verdicts, and the evidence for each, page by page."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aisp_mcp.front.dashboard import figures
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count, ordered, summed
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs.export import html, markdown
from aisp_mcp.runs.history import SHORT
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.charts.ratios import RatioRow
from aisp_mcp.server.text import numbers
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import VerdictFilter

PAGE = 25


def build(request: PageRequest) -> dict[str, Any]:
    """?id=, ?verdict= of the comparisons to show, ?part= of them. Raises NotFound UNKNOWN_RUN."""
    run = request.ctx.store.run(Run, request.word("id"), request.ctx.sees)
    before = _before(request, run.comparisons[0].target if run.comparisons else "", run.created_at)
    counts = ordered(Counter(comparison.decided.value for comparison in run.comparisons))
    verdict = request.word("verdict") if request.word("verdict") in counts else ""
    chosen = [comparison for comparison in run.comparisons if verdict in ("", comparison.decided.value)]
    pages = max((len(chosen) + PAGE - 1) // PAGE, 1)
    text = request.word("part", "1")
    page = min(max(int(text) if text.isdecimal() and len(text) < 6 else 1, 1), pages)
    shown = chosen[PAGE * (page - 1) : PAGE * page]
    return {
        "title": run.title,
        "lead": _lead(run, counts),
        "run": run,
        "counts": counts,
        "chosen": verdict,
        "stack": figures.of_counts(counts) if len(run.comparisons) > 1 else None,
        "workload": figures.of_workload(run.workload) if run.workload else None,
        "program": _program(run),
        "chart": html.of_comparisons(shown, run.preset) if shown else None,
        "evidence": [
            (comparison, html.figure_rows(comparison), run.is_provisional(comparison)) for comparison in shown
        ],
        "number": page,
        "pages": pages,
        "noise": markdown.noise(run),
        "before": before,
        "folder": request.ctx.store.run_dir(run.id),
    }


def _lead(run: Run, counts: dict[str, int]) -> str:
    """The verdicts of a run in one sentence, with its largest proven gain."""
    if run.program is not None:
        return run.program.sentence
    if run.workload is not None:
        return run.workload.sentence
    if len(run.comparisons) == 1 and not run.commits:
        return _sentence(run.comparisons[0])
    if run.commits:
        base, head = (run.commits[name][:SHORT] for name in ("base", "head"))
        return f"Head {head} against base {base}: {summed(counts)}."
    proven = [comparison for comparison in run.comparisons if not run.is_provisional(comparison)]
    faster = [comparison for comparison in proven if comparison.verdict.value == "faster"]
    best = max(faster, key=_lower_end, default=None)
    text = f"{count(len(run.comparisons), 'candidate')}: {summed(counts)}." if counts else "Nothing could be judged."
    return text if best is None else f"{text} Largest proven gain: {_sentence(best)}"


def _program(run: Run) -> Drawing | None:
    """The pair alone beside its user's program."""
    if run.program is None:
        return None
    judged = run.workload or run.comparisons[0]
    low, high = (judged.interval.low, judged.interval.high) if judged.interval else (None, None)
    name = "workload alone" if run.workload else f"{run.comparisons[0].label} alone"
    return figures.of_program(RatioRow(name, str(judged.verdict), judged.ratio, low, high), run.program)


def _sentence(comparison: Comparison) -> str:
    interval = comparison.interval
    ends = f" [{numbers.ratio(interval.low)}, {numbers.ratio(interval.high)}]" if interval else ""
    ratio = numbers.ratio(comparison.ratio, comparison.at_least)
    return f"{comparison.known_as} is {comparison.decided.value}, {ratio}{ends}."


def _lower_end(comparison: Comparison) -> float:
    return comparison.interval.low if comparison.interval else 0.0


def _before(request: PageRequest, target: str, at: float) -> str | None:
    """Id of the latest earlier run that measured the same target."""
    chapter = target.partition(":")[0]
    rows, _ = request.ctx.store.list_verdicts(VerdictFilter(chapter=chapter), 200, None, request.ctx.sees)
    return next((row.run_id for row in rows if row.created_at < at and row.target.startswith(target)), None)
