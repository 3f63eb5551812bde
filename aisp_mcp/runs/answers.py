"""The answer of a measurement: each verdict in brief, and disturbances of the machine."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.endtoend import EndToEnd
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.judge.records.workload import Workload
from aisp_mcp.profile.recording.ran import Passes
from aisp_mcp.records import Record
from aisp_mcp.runs.expectations.accepting import Rewritten
from aisp_mcp.store.records.run import Failure, Run


class Brief(Record):
    """One comparison in brief. time_s: baseline and candidate, seconds per call."""

    target: str
    verdict: str
    sentence: str
    ratio: float | None
    interval: list[float]
    noise_floor: float | None
    time_s: list[float]
    verified: list[int] = Field(description="Timed calls that were compared with the reference, and all of them.")
    clock: str | None
    of_peak: float | None = Field(description="Candidate's share of this machine's best measured rate.")
    headroom: float | None = Field(description="Speedup that is left up to that rate; null where no ceiling is known.")
    isolation: str
    flags: list[str]


class JudgedCandidate(Brief):
    """One comparison in brief, and how far its ratio can be relied on."""

    provisional: bool = Field(default=False, description="One replicate: a hint, which default must confirm.")
    at_least: bool = Field(default=False, description="The ratio is a lower bound.")


class Verdicts(Record):
    """A run in brief; run.json and the raw rounds in the run's folder contain everything."""

    run_id: str
    passed: bool | None = Field(
        description="Nothing failed, and nothing was slower, incorrect or invalid; null if something is inconclusive."
    )
    workload: Workload | None = Field(default=None, description="The verdict on all rulings together.")
    program: EndToEnd | None = Field(default=None, description="The verdict inside the user's program.")
    rulings: list[JudgedCandidate]
    flags: dict[str, str] = Field(default_factory=dict, description="What each flag says, in its first verdict.")
    skipped: list[Skip]
    failed: list[Failure]
    noise: list[str] = Field(description="What disturbed the machine while it measured.")
    seconds: float
    profiles: Passes | None = None
    evidence: list[Comparison] | None = None
    rewritten: list[Rewritten] | None = Field(default=None, description="Expectations, with accept_regressions.")


def in_brief(run: Run, judged: Comparison) -> JudgedCandidate:
    """One comparison of a run for its answer."""
    return JudgedCandidate(
        provisional=run.is_provisional(judged),
        at_least=judged.at_least,
        target=judged.known_as,
        verdict=judged.verdict,
        sentence=judged.sentence,
        ratio=judged.ratio,
        interval=[judged.interval.low, judged.interval.high] if judged.interval else [],
        noise_floor=judged.noise_floor,
        time_s=[program.time_s for program in (judged.baseline, judged.optimized) if program],
        verified=[seen.checked, seen.calls] if (seen := judged.verification) else [],
        clock=judged.clocks.used if judged.clocks else None,
        of_peak=judged.peak.share if judged.peak else None,
        headroom=judged.peak.headroom if judged.peak else None,
        isolation=judged.isolation,
        flags=[flag.code for flag in judged.flags],
    )


def verdicts(run: Run, evidence: bool, profiles: Passes | None = None) -> Verdicts:
    """The whole answer. evidence: include every comparison as it is stored."""
    return Verdicts(
        run_id=run.id,
        passed=run.passed,
        workload=run.workload,
        program=run.program,
        rulings=[in_brief(run, comparison) for comparison in run.comparisons],
        flags={flag.code: flag.message for comparison in run.comparisons[::-1] for flag in comparison.flags[::-1]},
        skipped=run.skipped,
        failed=run.failed,
        noise=[flag["message"] for flag in run.environment["during"]["flags"]],
        seconds=run.seconds,
        profiles=profiles,
        evidence=run.comparisons if evidence else None,
    )
