"""What every rule returns, and from when on a finding matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.model.envelope import NextStep
from aisp_mcp.model.profile import Abstention, Breakdown, Insight, Profile, Severity, Timeline
from aisp_mcp.profilers.text import shorten

Evidence = list[dict[str, str | int | float]]
Finding = Insight | Abstention | None
Rule = Callable[[Profile], Finding]

HIGH, MEDIUM, LOW = 0.15, 0.05, 0.01
_ROWS = 5


def found(
    rule: str, title: str, ceiling: float, basis: str, evidence: Evidence, fix: str, step: NextStep
) -> Insight | None:
    """An insight, or None where its ceiling is too small to matter."""
    ceiling = min(ceiling, 1.0)
    if ceiling < LOW:
        return None
    severity: Severity = "high" if ceiling >= HIGH else "medium" if ceiling >= MEDIUM else "low"
    return Insight(
        rule=rule,
        severity=severity,
        title=title,
        evidence=evidence[:_ROWS],
        gain_ceiling=round(ceiling, 4),
        basis=basis,
        fix=fix,
        next=step,
    )


def abstain(rule: str, reason: str) -> Abstention:
    return Abstention(rule=rule, reason=reason)


def short(name: str) -> str:
    return shorten(name, 80)


def step(tool: str, why: str, **args: Any) -> NextStep:
    return NextStep(tool=tool, args=args, why=why)


def timeline(profile: Profile) -> Timeline:
    """For rules that only run on profiles that have one."""
    assert profile.timeline is not None
    return profile.timeline


def total(profile: Profile, field: Callable[[Breakdown], int]) -> int:
    """Sum over devices."""
    return sum(field(row) for row in timeline(profile).breakdown)


def share(profile: Profile, ns: float) -> float:
    """Of the window, averaged over devices."""
    span = total(profile, lambda row: row.span_ns)
    return ns / span if span else 0.0
