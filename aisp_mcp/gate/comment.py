"""The comment of a gate on a pull request; rows in a pipeline's terms: passed, failed, broken, or not judged."""

from __future__ import annotations

from collections.abc import Mapping

from aisp_mcp.gate import flames, history
from aisp_mcp.gate.policy import resolution_words
from aisp_mcp.gate.records import GateReport, GateRow, Outcome, Policy
from aisp_mcp.runs.export.comment import Page, marker, title, write
from aisp_mcp.runs.export.markdown import escape
from aisp_mcp.runs.export.outcomes import Row, State
from aisp_mcp.server.text import numbers

MOST = 40  # benchmarks whose history is shown


def gate_comment(report: GateReport) -> str:
    """GitHub-flavoured Markdown of at most 65,536 characters; rows that do not fit are counted."""
    rows = of_gate(report, {})
    commits = " → ".join(f"`{flames.clean(commit[:12])}`" for commit in (report.base, report.head))
    head = [marker("gate"), title("Performance gate", report.passed is not False, rows), "", commits, ""]
    cost = "" if report.cost_usd is None else f", ${report.cost_usd:.2f}"
    took = f"{report.seconds / 60:.1f} min{cost}"
    foot = [
        *_history(report),
        *_flames(report),
        "",
        f"Base and head measured interleaved in one job: {took}. Run {escape(report.run_id)}.",
    ]
    notes = {row.target: _spec(row) for row in report.rows}
    return write(Page(head, foot, "head against base"), [(row, notes[row.target]) for row in rows])


def _history(report: GateReport) -> list[str]:
    """Times at the last commits, if any were measured before this gate's."""
    rows = [row for row in report.rows if len(row.history) > 2][:MOST]
    if not rows:
        return []
    table = ["| benchmark | | time per call at the last commits, the head last |", "| --- | --- | --- |"]
    for row in rows:
        points = [f"`{flames.clean(point.commit[:8])}` {numbers.seconds(point.seconds)}" for point in row.history]
        table.append(f"| {escape(row.target)} | {history.sparkline(row.history)} | {' → '.join(points)} |")
    return ["", "<details><summary>History over the last commits</summary>", "", *table, "", "</details>"]


def _flames(report: GateReport) -> list[str]:
    """Differences of flame graphs, folded except for the first."""
    lines = []
    for number, row in enumerate(row for row in report.rows if row.flame):
        opening = "<details open>" if not number else "<details>"
        lines += ["", f"{opening}<summary>What takes longer in {escape(row.target)}</summary>", ""]
        lines += ["```text", *(row.flame or "").splitlines(), "```", "", "</details>"]
    return lines


def _spec(row: GateRow) -> str:
    """Additions to the row's sentence: the resolution reached, and a changed specification."""
    resolution = f"; {resolution_words(row.resolution)}" if row.resolution is not None else ""
    return resolution + ("; the specification changed, and the base's was used" if row.spec_changed else "")


OUTCOMES: dict[Outcome, State] = {
    "improved": State.PASSED,
    "unchanged": State.PASSED,
    "could_not_judge": State.UNJUDGED,
    "missing": State.UNJUDGED,
    "new": State.UNJUDGED,
    "regressed": State.FAILED,
    "wrong": State.FAILED,
    "failed": State.BROKEN,
}


def of_gate(report: GateReport, policies: Mapping[Outcome, Policy]) -> list[Row]:
    """Rows of a gate. policies: meaning of could_not_judge and missing; `fail` makes them failures."""
    return [_gated(row, policies) for row in report.rows]


def _gated(row: GateRow, policies: Mapping[Outcome, Policy]) -> Row:
    state = State.FAILED if policies.get(row.outcome) == "fail" else OUTCOMES[row.outcome]
    word = row.outcome.replace("_", " ")
    return Row(
        row.target, state, word, row.sentence, row.ratio, row.low, row.high, row.noise_floor, at_least=row.at_least
    )
