"""The pull request comment of a gate."""

from __future__ import annotations

from aisp_mcp.gate.outcomes import of_gate
from aisp_mcp.gate.policy import resolution_words
from aisp_mcp.gate.records import GateReport, GateRow
from aisp_mcp.runs.export.comment import Page, marker, title, write
from aisp_mcp.runs.export.markdown import escape


def gate_comment(report: GateReport) -> str:
    """GitHub-flavoured Markdown of at most 65,536 characters; rows that do not fit are counted."""
    rows = of_gate(report, {})
    commits = f"`{report.base[:12]}` → `{escape(report.head[:12])}`"
    head = [marker("gate"), title("Performance gate", report.passed, rows), "", commits, ""]
    cost = "" if report.cost_usd is None else f", ${report.cost_usd:.2f}"
    took = f"{report.seconds / 60:.1f} min{cost}"
    foot = ["", f"Both commits measured interleaved in one job: {took}. Run {escape(report.run_id)}."]
    notes = {row.target: _spec(row) for row in report.rows}
    return write(Page(head, foot, "head against base"), [(row, notes[row.target]) for row in rows])


def _spec(row: GateRow) -> str:
    """What the row adds to its sentence: the resolution reached, and a specification that changed."""
    seen = f"; {resolution_words(row.resolution)}" if row.resolution is not None else ""
    return seen + ("; the specification changed, and the base's was used" if row.spec_changed else "")
