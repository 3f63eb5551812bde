"""Rows of a gate report in a pipeline's terms: passed, failed, broken, or not judged."""

from __future__ import annotations

from collections.abc import Mapping

from aisp_mcp.gate.records import GateReport, GateRow, Outcome, Policy
from aisp_mcp.runs.export.outcomes import Row, State

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
