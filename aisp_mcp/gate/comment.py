"""The pull request comment of a gate."""

from __future__ import annotations

from aisp_mcp.gate.outcomes import of_gate
from aisp_mcp.gate.records import GateReport, GateRow
from aisp_mcp.runs.export.comment import Page, marker, write
from aisp_mcp.runs.export.markdown import escape


def gate_comment(report: GateReport) -> str:
    """GitHub-flavoured Markdown of at most 65,536 characters; rows that do not fit are counted."""
    word = "passed" if report.passed else "did not pass"
    commits = f"`{report.base[:12]}` → `{escape(report.head[:12])}`"
    head = [marker("gate"), f"### Performance gate {word}", "", commits, ""]
    cost = "" if report.cost_usd is None else f", ${report.cost_usd:.2f}"
    took = f"{report.seconds / 60:.1f} min{cost}"
    foot = ["", f"Both commits measured interleaved in one job: {took}. Run {escape(report.run_id)}."]
    notes = {row.target: _spec(row) for row in report.rows}
    rows = [(row, notes[row.target]) for row in of_gate(report, {})]
    return write(Page(head, foot, "head against base"), rows)


def _spec(row: GateRow) -> str:
    return "; the specification changed, and the base's was used" if row.spec_changed else ""
