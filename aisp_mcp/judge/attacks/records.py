"""Findings of the self-test on a machine."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class IssueRow(Record):
    """One validity issue, or one honest twin of it."""

    issue: int
    title: str
    kind: str = Field(description="B by construction, D hard signal, N numeric oracle, R disclosed fact.")
    level: str = Field(description="Least isolation level at which its control holds.")
    finding: str = Field(
        description="stopped, through, lost, passed (an honest twin), flagged wrongly, skipped, disclosed or untested."
    )
    case: str = Field(default="", description="The candidate that was judged.")
    ratio: float | None = Field(default=None, description="Speed-up the harness reported; none where it refused one.")
    undefended: float | None = Field(default=None, description="Speed-up recorded where nothing is defended.")
    why: str = ""


class Selftest(Record):
    """Result of the known attacks, run against the harness on this machine."""

    passed: bool = Field(description="Nothing got through, no run was lost, no honest twin was accused.")
    summary: dict[str, int] = Field(description="Rows by finding.")
    device: str
    isolation: str = Field(description="Highest level that was proved to work here.")
    seconds: float
    categories: dict[str, list[IssueRow]]
