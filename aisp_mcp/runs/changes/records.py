"""Records of a comparison of two runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.records import Record


class ChangeVerdict(StrEnum):
    """The six verdicts, and could_not_judge if the runs were measured under different conditions."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    COULD_NOT_JUDGE = "could_not_judge"
    INCORRECT = "incorrect"
    INVALID = "invalid"


class Outcome(StrEnum):
    """passed only if every benchmark could be judged."""

    PASSED = "passed"
    FAILED = "failed"
    COULD_NOT_JUDGE = "could_not_judge"


class Change(Record):
    """Change of one benchmark from one run to another.

    change is the candidate's ratio in the later run over that in the earlier: above 1 the candidate gained on its own
    baseline. Each ratio was measured against its baseline in the same run, so a machine that is slower as a whole
    cancels. p_value is two-sided; p_adjusted is after Benjamini and Hochberg over all benchmarks of the answer.
    """

    target: str
    candidate: str
    verdict: ChangeVerdict
    sentence: str
    reasons: list[str] = Field(default_factory=list, description="Conditions that differ, so that nothing is judged.")
    provisional: bool = Field(default=False, description="A run has one replicate of it.")
    change: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = Field(default=None, description="Both runs' floors together, as a fraction.")
    margin: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    ratio_before: float | None = None
    ratio_after: float | None = None
    at_least_before: bool = Field(default=False, description="ratio_before is a lower bound.")
    at_least_after: bool = False
    time_before_s: float | None = Field(default=None, description="Candidate, per call; other days, other clocks.")
    time_after_s: float | None = None


class Missing(Record):
    """A benchmark that only one of the runs has a result for, and the reason, if the other run gives one."""

    target: str
    candidate: str | None = None
    missing_in: str = Field(description="baseline_run or candidate_run")
    reason: str


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


class RunComparison(Record):
    """passed: every benchmark of the baseline run was judged, and nothing is slower, incorrect, invalid or missing."""

    sentence: str
    outcome: Outcome
    passed: bool
    conditions: list[str] = Field(description="Differences between the runs that forbid to compare any benchmark.")
    changes: list[Change]
    missing: list[Missing]
    environment_difference: list[str] = Field(description="All differences of the machines, also harmless ones.")
    counts: dict[str, int]
    again: list[Recommendation] = Field(description="Calls that judge what could not be judged.")


class Triage(Record):
    """Regressions, suspects and the next command."""

    regressed: list[Change]
    not_judged: list[Change] = Field(default_factory=list, description="Conditions of the runs differ.")
    suspect: list[Suspicion]
    missing: list[Missing] = Field(default_factory=list)
    not_measured: list[str] = Field(default_factory=list)
    environment_difference: list[str] = Field(default_factory=list)
    run_next: list[Recommendation]
