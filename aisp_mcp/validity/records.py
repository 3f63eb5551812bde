"""The answers of the self-test."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class IssueRow(Record):
    """One validity issue, or one honest twin of it."""

    issue: int
    title: str
    kind: str = Field(description="B by construction, D hard signal, N numeric oracle, R disclosed fact.")
    level: str = Field(description="Lowest isolation level at which its control works.")
    finding: str = Field(
        description="stopped, through, lost, passed (an honest twin), flagged wrongly, skipped, disclosed or untested."
    )
    case: str = Field(default="", description="The candidate that was judged.")
    ratio: float | None = Field(
        default=None, description="Speed-up that the harness reported; none if it refused the candidate."
    )
    undefended: float | None = Field(default=None, description="Speed-up recorded in a harness without defences.")
    why: str = ""


class Selftest(Record):
    """Result of the known attacks, run against the harness on this machine."""

    passed: bool = Field(description="No attack got through, no run was lost, and no honest twin was accused.")
    summary: dict[str, int] = Field(description="Rows by finding.")
    device: str
    isolation: str = Field(description="Highest level that was proved to work here.")
    seconds: float
    categories: dict[str, list[IssueRow]]
