"""Records of a comparison of two runs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.records import Record


class Change(Record):
    """Change of one benchmark from one run to another.

    change is the candidate's ratio in the later run over that in the earlier: above 1 the candidate gained on its own
    baseline. Each ratio was measured against its baseline in the same run, so a machine that is slower as a whole
    cancels. p_value is two-sided; p_adjusted is after Benjamini and Hochberg over all benchmarks of the answer.
    """

    target: str
    candidate: str
    verdict: Verdict
    sentence: str
    change: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = Field(default=None, description="Both runs' floors together, as a fraction.")
    margin: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    ratio_before: float | None = None
    ratio_after: float | None = None
    time_before_s: float | None = Field(default=None, description="Candidate, per call; other days, other clocks.")
    time_after_s: float | None = None


class Missing(Record):
    """A benchmark that only one of the runs has a result for, and why, if the other run says why."""

    target: str
    candidate: str | None = None
    missing_in: str = Field(description="baseline_run or candidate_run")
    reason: str


class RunComparison(Record):
    """passed: nothing slower, incorrect or invalid, and nothing of the baseline run missing."""

    passed: bool
    changes: list[Change]
    missing: list[Missing]
    environment_difference: list[str] = Field(description="Empty: the runs are comparable.")
    counts: dict[str, int]


class Suspicion(Record):
    """A reason to look twice, strongest first."""

    severity: str
    code: str
    target: str
    candidate: str
    message: str
    evidence: dict[str, Any] = Field(default_factory=dict)


class Recommendation(Record):
    """A call that would settle an open question."""

    tool: str
    args: dict[str, Any]
    why: str


class Triage(Record):
    """Regressions, suspects and the next command."""

    regressed: list[Change]
    suspect: list[Suspicion]
    missing: list[Missing] = Field(default_factory=list)
    not_measured: list[str] = Field(default_factory=list)
    environment_difference: list[str] = Field(default_factory=list)
    run_next: list[Recommendation]
