"""Benchmarks: measure a pair in isolated workers, verify every round, judge, and store the run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.recording.ran import Depth
from aisp_mcp.runs.answers import Verdicts, verdicts
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool
from aisp_mcp.settings import ClusterSettings
from aisp_mcp.store.records.run import Run
from aisp_mcp.suites.adapters.tools import ProblemParams
from aisp_mcp.suites.records import BenchRoots

if TYPE_CHECKING:
    from aisp_mcp.judge.functions.pair import Request
    from aisp_mcp.judge.options import Options
    from aisp_mcp.runs.endtoend.measuring import Task
    from aisp_mcp.suites.adapters.adapt import AdaptRequest

PresetName = Literal["quick", "default", "release"]


class ChosenParams(JobParams):
    targets: list[str] = Field(default_factory=list, max_length=200, description="Such as ch07, ch07:row_sum_tiled.")
    source: str | None = Field(default=None, alias="from", description="Such as kernelbench:PATH.")


class LabelledParams(JobParams):
    name: str = Field(default="", max_length=60)
    tag: list[str] = Field(default_factory=list, max_length=20)
    forbid: list[str] = Field(default_factory=list, description="Operators to refuse.")  # docs/adapters.md


class RunParams(LabelledParams, ChosenParams):
    preset: PresetName = Field(default="default", description="1, 5 or 10 replicates.")
    replicates: int | None = Field(default=None, ge=1, le=50)
    validity: Literal["strict", "portable"] = "portable"
    isolation: Literal["auto", "L1", "L2", "L3"] = Field(default="auto", description="Demand a level.")
    margin: float | None = Field(default=None, ge=0, le=1, description="Least difference that counts.")
    size: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Such as ch07:row_sum:rows=1024.",
    )
    rank_env: list[str] = Field(default_factory=list, max_length=20, description="Such as NCCL_ALGO=Ring.")
    resume: str | None = Field(default=None, description="An interrupted run.")
    accept_regressions: bool = Field(default=False, description="Rewrite expect.yaml.")
    evidence: bool = False
    profile: Depth = Field(default="none")
    bench_root: BenchRoots = None


def _refuse_slips(p: RunParams) -> None:
    """Refuse arguments that are wrong whatever the suites contain. Raises UsageError."""
    from aisp_mcp.bench import sizes
    from aisp_mcp.judge import distributed
    from aisp_mcp.runs.listing import labels
    from aisp_mcp.suites.adapters import formats

    if bool(p.targets) == bool(p.source):
        steps: list[tuple[str, dict[str, Any]]] = [("aisp_benchmark_targets", {})]
        hint = "With resume: the targets of the interrupted run." if p.resume else None
        raise UsageError("NO_TARGETS", "Give either targets, such as ch07:row_sum, or from.", hint, steps)
    distributed.read(p.rank_env)
    labels.require_valid(p.name, p.tag)
    if p.source:
        formats.require_readable(formats.split(p.source)[1])
        return
    for text in p.size:
        sizes.value(text.rpartition(":")[2])


def _estimate_run(p: RunParams, ctx: Context) -> Plan:
    from aisp_mcp.judge import comparison
    from aisp_mcp.runs import measure
    from aisp_mcp.runs import profiles as passes
    from aisp_mcp.suites import selection
    from aisp_mcp.system.gpu import nvml

    _refuse_slips(p)  # before a job starts
    pairs, broken = selection.pairs(ctx.bench_roots(p.bench_root), p.targets)
    preset = measure.preset(p.preset, p.replicates)
    chosen = preset.for_gpu() if nvml.benchmark_device() == "cuda" else preset
    details: dict[str, Any] = {
        "pairs": [pair.label for pair in pairs],
        "baselines": list(dict.fromkeys(str(pair.baseline) for pair in pairs)),
        "unusable": [failure.target for failure in broken],
    }
    seconds = sum(comparison.estimate_s(pair, chosen) for pair in pairs) + passes.estimate_s(ctx, p.profile, pairs)
    cluster = ClusterSettings.from_env({**os.environ, **ctx.job_env})
    measure.require_nodes(pairs, cluster)
    if cluster.array:
        if p.accept_regressions:
            hint = "Accept a run's regressions with aisp bench proof."
            raise UsageError("BAD_PLACEMENT", "All tasks of an array would write the same expect.yaml.", hint)
        details["digests"] = selection.digests(pairs)
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[], estimate_s=seconds, details=details)


@tool(
    cli="bench run",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=1800, measures=True),
    needs=("torch",),
    next=("aisp_benchmark_export", "aisp_benchmark_expectations"),
    estimate=_estimate_run,
    verdict=True,
    chart="verdicts",
    listed="default",
)
def aisp_run_benchmarks(p: RunParams, ctx: Context) -> Verdicts:
    """Measure baselines and candidates in isolated processes, verify outputs, and judge each candidate."""
    from aisp_mcp.runs import adapted, measure, profiles
    from aisp_mcp.runs.expectations import accepting
    from aisp_mcp.runs.listing import labels
    from aisp_mcp.suites import selection
    from aisp_mcp.suites.adapters import adapt

    ends_at = time.monotonic() + (p.timeout_s or 1800)
    _refuse_slips(p)
    preset, values = measure.preset(p.preset, p.replicates), [] if p.source else p.size
    options = measure.options(ctx, preset, p.isolation, p.margin, values, p.rank_env, p.forbid)
    if p.source:
        request = adapt.AdaptRequest(p.source, constants=adapt.constants(p.size))
        run, chosen = adapted.measure(ctx, request, options, p.validity)
    else:
        chosen, broken = selection.pairs(ctx.bench_roots(p.bench_root), p.targets)
        if p.accept_regressions:
            accepting.require_writable(ctx, p.bench_root, [pair.label for pair in chosen])
        before = ctx.store.run(Run, p.resume, ctx.sees) if p.resume else None
        run = measure.measure(ctx, chosen, options, p.validity, broken, before)
    measure.require_some(run)
    labelled = labels.labelled(ctx, run, p.name, p.tag)
    answer = verdicts(labelled, p.evidence, profiles.make(ctx, run, chosen, p.profile, ends_at))
    rewritten = accepting.graded(ctx, run, p.bench_root, rewrite=True)[1] if p.accept_regressions else None
    return answer.model_copy(update={"rewritten": rewritten})


class VerifyParams(LabelledParams, ProblemParams):
    target: str = Field(
        max_length=200_000,
        description="FILE.py[:NAME], MODULE:NAME, source text or a target.",
    )
    candidate: str = Field(max_length=200_000, description="The same, or .cpp or .cu.")
    inputs: str | None = Field(default=None, max_length=4000, description='Of two functions: "x=randn(4096,64), k=3".')
    make: str | None = Field(default=None, max_length=4096, description="FILE.py:NAME(seed, n) of arguments.")
    check: str | None = Field(default=None, max_length=4096, description="FILE.py:NAME(arguments, answer).")
    rtol: float | None = Field(default=None, ge=0, le=1)
    atol: float | None = Field(default=None, ge=0)
    workload: str | None = Field(default=None, max_length=4096, description="Table shape,weight, or TRACE[:OPERATOR].")
    allow_slower: bool = False
    program: str | None = Field(
        default=None, alias="in", max_length=4000, description="Command or FILE.py:NAME to judge it in."
    )
    replace: str | None = Field(default=None, max_length=400, description="MODULE:NAME, or env:NAME=OLD,NEW.")
    metric: str | None = Field(default=None, max_length=1000, description="As aisp keep.")
    better: Literal["lower", "higher"] | None = None
    preset: PresetName = "default"
    replicates: int | None = Field(default=None, ge=1, le=50)
    margin: float | None = Field(default=None, ge=0, le=1)
    evidence: bool = Field(default=False)
    bench_root: BenchRoots = None


def _with_format(p: VerifyParams, ctx: Context) -> VerifyParams:
    """The call with the format of its target, if that is another suite's problem and no format is named."""
    from aisp_mcp.suites import names
    from aisp_mcp.suites.adapters import formats

    name = formats.recognised(p.target) if not p.format and p.inputs is None and p.make is None else None
    if name is None or names.exists(ctx.bench_roots(p.bench_root), p.target):  # finding targets takes long
        return p
    return p.model_copy(update={"format": name})


def _functions(p: VerifyParams, ctx: Context) -> Request | None:
    """The call's functions, if it names functions and not a target of a suite."""
    from aisp_mcp.judge.functions import pair, sources
    from aisp_mcp.suites import names

    is_own = any(value is not None for value in (p.make, p.check, p.rtol, p.atol, p.workload, p.program))
    if p.format and is_own:
        message = "make, check, rtol, atol, workload and in are for two functions."
        raise UsageError("NOT_FUNCTIONS", message, "Leave out the format.")
    if p.format:
        return None
    if (
        p.inputs is None
        and not is_own
        and not (sources.is_function(p.target) and not names.exists(ctx.bench_roots(p.bench_root), p.target))
    ):
        return None
    return pair.Request(
        p.target, p.candidate, p.inputs or "", name=p.name, make=p.make, check=p.check, rtol=p.rtol, atol=p.atol
    )


def _in_program(p: VerifyParams) -> Task | None:
    """The program or step in which the pair is judged as well."""
    if p.program is None:
        if p.replace or p.metric or p.better:
            message = "replace, metric and better say how a program is judged."
            raise UsageError("BAD_PROGRAM", message, "Add --in 'python PROGRAM.py' or --in-step FILE.py:NAME.")
        return None
    from aisp_mcp.runs.endtoend import measuring

    replicates = p.replicates or measuring.REPLICATES[p.preset]
    metric, better = p.metric or measuring.TIME, p.better or "lower"
    how = measuring.Request(p.program, p.replace, metric, better, replicates, p.timeout_s or 1800)
    return measuring.prepared(how, p.target, p.candidate)


def _estimate_verify(p: VerifyParams, ctx: Context) -> Plan:
    # Each kind imports what it needs: a loop's every step begins with this.
    from aisp_mcp.runs.listing import labels

    p = _with_format(p, ctx)
    details = dict[str, Any]()
    seconds = None
    labels.require_valid(p.name, p.tag)
    functions = _functions(p, ctx)
    if p.workload and functions:
        from aisp_mcp.runs.workload.measuring import regimes

        details["regimes"] = [row.label for row in regimes(functions, p.workload).read.rows]
    elif functions:
        from aisp_mcp.judge.functions import pair as function_pairs

        plan = function_pairs.plan(functions)
        details["functions"] = [plan.target, plan.variant]
    elif p.format:
        from aisp_mcp.suites.adapters import formats

        formats.require_readable(formats.split(p.target)[1])
    else:  # wrong names are refused before a job starts
        seconds, details["baseline"] = _estimate_pair(p, ctx)
    if task := _in_program(p):
        details["program"], details["place"] = task.program, task.place
    return Plan(argv=[], timeout_s=p.timeout_s or 1800, resources=[], estimate_s=seconds, details=details)


def _estimate_pair(p: VerifyParams, ctx: Context) -> tuple[float, str]:
    """Upper estimate of the seconds for a candidate of a suite's target, and the target's path."""
    from aisp_mcp.judge import comparison
    from aisp_mcp.judge.pair import Pair
    from aisp_mcp.runs import measure
    from aisp_mcp.suites import names, selection

    selection.require_candidate(p.candidate)
    target = names.one(ctx.bench_roots(p.bench_root), p.target)
    chosen = measure.preset(p.preset, p.replicates)
    return comparison.estimate_s(Pair(target.name, Path(target.path), "", Path(target.path)), chosen), target.path


@tool(
    cli="bench verify",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=1800, measures=True),
    needs=("torch",),
    next=("aisp_benchmark_export",),
    estimate=_estimate_verify,
    verdict=True,
    chart="verdicts",
    listed="default",
)
def aisp_verify_candidate(p: VerifyParams, ctx: Context) -> Verdicts:
    """Judge your own variant against a baseline: faster, slower, same, inconclusive, incorrect or invalid."""
    from aisp_mcp.runs import adapted, functions, measure
    from aisp_mcp.runs.endtoend import measuring as endtoend
    from aisp_mcp.runs.listing import labels
    from aisp_mcp.runs.workload import measuring
    from aisp_mcp.store.records.verdict_row import RunKind
    from aisp_mcp.suites import selection

    p = _with_format(p, ctx)
    options = measure.options(ctx, measure.preset(p.preset, p.replicates), margin=p.margin, forbidden=p.forbid)
    roots, about = ctx.bench_roots(p.bench_root), measure.About(RunKind.VERIFY)
    request, task = _functions(p, ctx), _in_program(p)
    turns = endtoend.Turns(task, options.folder / "program", ctx.progress) if task else None
    if request and p.workload:
        run = measuring.measure(ctx, measuring.regimes(request, p.workload), p.workload, options, p.allow_slower)
    elif request:
        run = functions.measure(ctx, request, options)
    elif p.format:
        run, _ = adapted.measure(ctx, _adapt_request(p, options), options, about=about)
    else:
        pair = selection.candidate_pair(roots, p.target, p.candidate, options.folder)
        run = measure.measure(ctx, [pair], options, about=about)
    measure.require_some(run)
    if turns:
        run = endtoend.conclude(ctx, run, turns, p.margin)
    return verdicts(labels.labelled(ctx, run, p.name, p.tag), p.evidence)


def _adapt_request(p: VerifyParams, options: Options) -> AdaptRequest:
    """Another suite's problem, with the candidate in that suite's format."""
    from aisp_mcp.suites.adapters import adapt

    candidates = [adapt.text_file(p.candidate, options.folder, p.format or "")]
    sizes = {name: adapt.number_or_list(value) for name, value in p.set.items()}
    return adapt.AdaptRequest(p.target, p.format, candidates, sizes, p.recipe, p.tolerance, p.mode)
