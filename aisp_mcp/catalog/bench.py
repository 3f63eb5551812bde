"""Benchmarks: measure a pair in isolated workers, verify every round, judge, and keep the run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from aisp_mcp.catalog.adapters import RECIPE, FormatName
from aisp_mcp.context import Context
from aisp_mcp.errors import UsageError
from aisp_mcp.flows.accepting import Rewritten
from aisp_mcp.model.base import Record
from aisp_mcp.model.run import Failure, Run, Skip
from aisp_mcp.model.verdict import Comparison
from aisp_mcp.model.workload import BenchRoots
from aisp_mcp.profilers.ran import Depth, Passes
from aisp_mcp.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool
from aisp_mcp.settings import ClusterSettings

PresetName = Literal["quick", "default", "release"]


class Ruling(Record):
    """One comparison in brief. time_s: baseline and candidate, seconds per call."""

    target: str
    verdict: str
    sentence: str
    ratio: float | None
    interval: list[float]
    noise_floor: float | None
    time_s: list[float]
    clock: str | None
    of_peak: float | None = Field(description="Candidate's share of this machine's best measured rate.")
    headroom: float | None = Field(description="Speedup that is left up to that rate; null where no ceiling is known.")
    isolation: str
    flags: list[str]


class Verdicts(Record):
    """A run in brief; run.json and the raw rounds in the run's folder hold everything."""

    run_id: str
    passed: bool = Field(description="Nothing failed, and nothing was slower, incorrect or invalid.")
    rulings: list[Ruling]
    skipped: list[Skip]
    failed: list[Failure]
    noise: list[str] = Field(description="What disturbed the machine while it measured.")
    seconds: float
    profiles: Passes | None = None
    evidence: list[Comparison] | None = None
    rewritten: list[Rewritten] | None = Field(default=None, description="Expectations, with accept_regressions.")


def _ruling(one: Comparison) -> Ruling:
    return Ruling(
        target=one.label,
        verdict=one.verdict,
        sentence=one.sentence,
        ratio=one.ratio,
        interval=[one.interval.low, one.interval.high] if one.interval else [],
        noise_floor=one.noise_floor,
        time_s=[side.time_s for side in (one.baseline, one.optimized) if side],
        clock=one.clocks.used if one.clocks else None,
        of_peak=one.peak.share if one.peak else None,
        headroom=one.peak.headroom if one.peak else None,
        isolation=one.isolation,
        flags=[flag.code for flag in one.flags],
    )


def _verdicts(run: Run, evidence: bool, profiles: Passes | None = None) -> Verdicts:
    return Verdicts(
        run_id=run.id,
        passed=run.passed,
        rulings=[_ruling(one) for one in run.comparisons],
        skipped=run.skipped,
        failed=run.failed,
        noise=[flag["message"] for flag in run.environment["during"]["flags"]],
        seconds=run.seconds,
        profiles=profiles,
        evidence=run.comparisons if evidence else None,
    )


class ChosenParams(JobParams):
    targets: list[str] = Field(
        default_factory=list, max_length=200, description="Such as ch07, ch07:row_sum, ch07:row_sum_tiled."
    )
    source: str | None = Field(
        default=None, alias="from", description="Instead: another suite's problem, such as kernelbench:PATH."
    )


class RunParams(ChosenParams):
    preset: PresetName = Field(default="default", description="1, 5 or 10 replicates of three processes.")
    replicates: int | None = Field(default=None, ge=1, le=50)
    validity: Literal["strict", "portable"] = "portable"
    isolation: Literal["auto", "L1", "L2", "L3"] = Field(default="auto", description="Demand a level.")
    margin: float | None = Field(default=None, ge=0, le=1, description="Least difference that counts, such as 0.01.")
    size: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Sizes instead of the preset's: rows=1024, ranks=4, or ch07:row_sum:rows=1024.",
    )
    rank_env: list[str] = Field(
        default_factory=list, max_length=20, description="Variables of ranks, such as NCCL_ALGO=Ring."
    )
    resume: str | None = Field(default=None, description="A run that was cut off, to go on with.")
    accept_regressions: bool = Field(default=False, description="Rewrite entries of expect.yaml that this contradicts.")
    evidence: bool = Field(default=False, description="Add clocks, sides, verification and facts of each verdict.")
    profile: Depth = Field(default="none", description="Passes of their own after the verdicts; never the timed ones.")
    bench_root: BenchRoots = None


def _refuse_slips(p: RunParams) -> None:
    """Refuse arguments that are wrong whatever the suites hold. Raises UsageError."""
    from aisp_mcp.adapters import formats
    from aisp_mcp.harness import rank_env, sizes

    if bool(p.targets) == bool(p.source):
        steps: list[tuple[str, dict[str, Any]]] = [("aisp_benchmark_targets", {})]
        raise UsageError("NO_TARGETS", "Give either targets, such as ch07:row_sum, or from.", None, steps)
    rank_env.read(p.rank_env)
    if p.source:
        formats.require_readable(formats.split(p.source)[1])
        return
    for text in p.size:
        sizes.value(text.rpartition(":")[2])


def _estimate_run(p: RunParams, ctx: Context) -> Plan:
    from aisp_mcp.flows import passes, referee

    _refuse_slips(p)  # before a job starts
    found, broken = referee.pairs(ctx.bench_roots(p.bench_root), p.targets)
    preset = referee.preset(p.preset, p.replicates)
    chosen = preset.for_gpu() if referee.device() == "cuda" else preset
    details: dict[str, Any] = {
        "pairs": [pair.label for pair in found],
        "baselines": list(dict.fromkeys(str(pair.baseline) for pair in found)),
        "unusable": [failure.target for failure in broken],
    }
    seconds = sum(referee.estimate_s(pair, chosen) for pair in found) + passes.estimate_s(ctx, p.profile, found)
    asked = ClusterSettings.from_env({**os.environ, **ctx.job_env})
    referee.require_nodes(found, asked)
    if asked.array:
        if p.accept_regressions:
            hint = "Accept a run's regressions with aisp bench proof."
            raise UsageError("BAD_PLACEMENT", "Tasks of an array would write one expect.yaml at once.", hint)
        details["digests"] = referee.digests(found)
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[], estimate_s=seconds, details=details)


@tool(
    cli="bench run",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=1800, measures=True),
    needs=("torch",),
    next=("aisp_benchmark_report", "aisp_benchmark_expectations", "aisp_benchmark_export"),
    estimate=_estimate_run,
    verdict=True,
    chart="verdicts",
    listed="default",
)
def aisp_run_benchmarks(p: RunParams, ctx: Context) -> Verdicts:
    """Measure baseline against optimized files in isolated processes, verify outputs, and judge each claim."""
    from aisp_mcp.flows import accepting, adapted, passes, referee

    ends_at = time.monotonic() + (p.timeout_s or 1800)
    _refuse_slips(p)
    values = [] if p.source else p.size
    how = referee.options(ctx, referee.preset(p.preset, p.replicates), p.isolation, p.margin, values, p.rank_env)
    if p.source:
        asked = adapted.Request(p.source, constants=adapted.constants(p.size))
        run, chosen = adapted.measure(ctx, asked, how, p.validity)
    else:
        chosen, broken = referee.pairs(ctx.bench_roots(p.bench_root), p.targets)
        if p.accept_regressions:
            accepting.require_writable(ctx, p.bench_root, [pair.label for pair in chosen])
        before = ctx.store.run(p.resume, ctx.sees) if p.resume else None
        run = referee.measure(ctx, chosen, how, p.validity, broken, before)
    referee.require_some(run)
    verdicts = _verdicts(run, p.evidence, passes.make(ctx, run, chosen, p.profile, ends_at))
    if not p.accept_regressions:
        return verdicts
    _, rewritten = accepting.graded(ctx, run, p.bench_root, rewrite=True)
    return verdicts.model_copy(update={"rewritten": rewritten})


class VerifyParams(JobParams):
    target: str = Field(description="The baseline to compare with, such as ch07:row_sum; with format, its path.")
    candidate: str = Field(
        max_length=200_000, description="Path of a file that defines run(), of a .cpp or .cu file, or its text."
    )
    format: FormatName | None = Field(default=None, description="Target and candidate are another suite's.")
    recipe: list[str] = Field(default_factory=list, max_length=100, description=RECIPE)
    preset: PresetName = "default"
    replicates: int | None = Field(default=None, ge=1, le=50)
    margin: float | None = Field(default=None, ge=0, le=1)
    evidence: bool = True
    bench_root: BenchRoots = None


def _estimate_verify(p: VerifyParams, ctx: Context) -> Plan:
    from aisp_mcp.adapters import formats
    from aisp_mcp.flows import referee, target_names
    from aisp_mcp.harness.config import Pair

    chosen, details = referee.preset(p.preset, p.replicates), dict[str, Any]()
    seconds = None
    if p.format:
        formats.require_readable(formats.split(p.target)[1])
    else:  # wrong names are refused before a job starts
        referee.require_candidate(p.candidate)
        target = target_names.one(ctx.bench_roots(p.bench_root), p.target)
        details["baseline"] = target.path
        seconds = referee.estimate_s(Pair(target.name, Path(target.path), "", Path(target.path)), chosen)
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[], estimate_s=seconds, details=details)


@tool(
    cli="bench verify",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=1800, measures=True),
    needs=("torch",),
    next=("aisp_benchmark_report",),
    estimate=_estimate_verify,
    verdict=True,
    chart="verdicts",
    listed="default",
)
def aisp_verify_candidate(p: VerifyParams, ctx: Context) -> Verdicts:
    """Judge your own variant against a baseline: faster, slower, same, inconclusive, incorrect or invalid."""
    from aisp_mcp.flows import adapted, referee

    how = referee.options(ctx, referee.preset(p.preset, p.replicates), margin=p.margin)
    if p.format:
        asked = adapted.Request(
            p.target, p.format, [adapted.text_file(p.candidate, how.folder, p.format)], recipe=p.recipe
        )
        run, _ = adapted.measure(ctx, asked, how)
        referee.require_some(run)
        return _verdicts(run, p.evidence)
    pair = referee.candidate_pair(ctx.bench_roots(p.bench_root), p.target, p.candidate, how.folder)
    run = referee.measure(ctx, [pair], how)
    referee.require_some(run)
    return _verdicts(run, p.evidence)
