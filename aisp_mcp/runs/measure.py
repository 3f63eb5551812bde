"""From target names to a stored run: find, measure, judge, store.

Candidates that were judged invalid are not run again until a person has cleared them. A candidate is identified by the
hash of its file, so renaming or copying it changes nothing. To clear it, delete the record by hand: no tool does so.

A machine that is suitable for canonical measurements is bare metal and exclusive, with known clocks. A share above 1 of
the machine's measured ceiling asks for an audit.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aisp_mcp.bench import sizes
from aisp_mcp.bench.sizes import Sizes
from aisp_mcp.errors import AispError, BenchmarkError, UsageError
from aisp_mcp.jobs.executors.local import MARK
from aisp_mcp.jobs.ready import WARM
from aisp_mcp.judge import comparison as orchestrator
from aisp_mcp.judge import distributed
from aisp_mcp.judge.options import Nodes, Options, Policy
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import PRESETS, Preset
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Comparison, Flag, PeakShare, Verdict
from aisp_mcp.machine.datasheets import load
from aisp_mcp.profile import roofline
from aisp_mcp.runs import commits
from aisp_mcp.server.context import Context
from aisp_mcp.settings import ClusterSettings, PoolSettings, SensorSettings
from aisp_mcp.store import machine_secret
from aisp_mcp.store.files import write_atomic
from aisp_mcp.store.measurements import Ceiling
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.store.records.verdict_row import RunKind
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters import origin
from aisp_mcp.system import cpu, manifest, sampler, slurm
from aisp_mcp.system.gpu import nvml


@dataclass(frozen=True)
class About:
    """Kind of a run, and for a gate the ids of its commits: base and head. part_of: the run that this measurement
    belongs to and is stored with; empty if it is a run of its own.
    """

    kind: RunKind = RunKind.BENCH
    commits: Mapping[str, str] = field(default_factory=dict)
    part_of: str = ""


SUITE = About()


def preset(name: str, replicates: int | None) -> Preset:
    """The named preset, with another number of replicates if given."""
    known = PRESETS[name]
    return known if replicates is None else replace(known, replicates=replicates, looks=())


def _supervisor() -> frozenset[int]:
    """The supervisor of this job: what is left of a candidate that was ended becomes its child, not this process's."""
    return frozenset({os.getppid()}) if MARK in os.environ else frozenset()


def require_nodes(chosen: Sequence[Pair], settings: ClusterSettings) -> None:
    """Check that only CPU ranks of a Slurm job span nodes. Raises UsageError RANKS_ON_ONE_NODE."""
    ranked = next((pair.label for pair in chosen if distributed.declared(pair.baseline) > 1), None)
    if ranked is None or settings.nodes == 1:
        return
    if settings.gpus:
        message = f"All ranks of {ranked} run on one node, not on {settings.nodes}: NCCL across nodes is untested."
        raise UsageError("RANKS_ON_ONE_NODE", message, "Omit --nodes or --gpus: gloo on CPUs spans nodes.")
    if settings.executor != "slurm" and "SLURM_JOB_ID" not in os.environ:
        message = f"The ranks of {ranked} span {settings.nodes} nodes in a Slurm job only."
        raise UsageError("RANKS_ON_ONE_NODE", message, "Add --executor slurm, or omit --nodes.")


def _nodes(settings: ClusterSettings) -> Nodes:
    """Nodes over which to spread ranks: those of this process's Slurm job, if several were requested."""
    if settings.nodes == 1 or "SLURM_JOB_ID" not in os.environ:
        return Nodes()
    others, address = slurm.other_nodes(settings.nodes)
    return Nodes(tuple((name, tuple(words)) for name, words in others), address)


def options(
    ctx: Context,
    chosen: Preset,
    isolation: str = "auto",
    margin: float | None = None,
    values: Sequence[str] = (),
    variables: Sequence[str] = (),
    forbidden: Sequence[str] = (),
) -> Options:
    """Options of a measurement on this machine: small sizes on a CPU, default ones on a GPU.

    values: sizes that override those of the preset, such as rows=1024, or ch07:row_sum:rows=1024 for one target.
    variables: of ranks. forbidden: operators that a candidate may not call. Raises UsageError BAD_SIZES, BAD_RANK_ENV.
    """
    kind = nvml.benchmark_device()
    preset = "default" if kind == "cuda" else "small"
    common = dict(sizes.value(text) for text in values if ":" not in text)
    own = [(text.rpartition(":")[0], sizes.value(text.rpartition(":")[2])) for text in values if ":" in text]
    of_target = {target: common | dict(pair for name, pair in own if name == target) for target, _ in own}
    folder = ctx.run_dir or ctx.settings.home / "runs" / "direct"
    folder.mkdir(parents=True, exist_ok=True)
    return Options(
        preset=chosen,
        size=Sizes(preset, common).text(),
        device=kind,
        folder=folder,
        isolation=ctx.settings.isolation if isolation == "auto" else isolation,
        margin=margin,
        powercap=SensorSettings.from_env().powercap,
        own_sizes=tuple((target, Sizes(preset, values).text()) for target, values in of_target.items()),
        variables=distributed.read(variables),
        nodes=_nodes(ClusterSettings.from_env()),
        policy=Policy(forbidden=tuple(forbidden)),
        secret=machine_secret.read(ctx.settings.home),
        leases=PoolSettings.from_env().leases,
        warm=_warm(ctx),
    )


def _warm(ctx: Context) -> Path | None:
    """The folder in which the supervisor of this job keeps libraries loaded for the next one."""
    if not ctx.settings.stay_loaded or MARK not in os.environ:
        return None
    folder = ctx.settings.home / WARM
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def measure(
    ctx: Context,
    chosen: list[Pair],
    how: Options,
    profile: str = "portable",
    broken: Sequence[Failure | Skip] = (),
    before: Run | None = None,
    about: About = SUITE,
) -> Run:
    """Measure the pairs one after another and store the run after each. A pair's failure does not affect the others.

    profile: strict adds to every comparison a flag with the reasons why this machine is not suitable for canonical
    measurements; portable only records them. Neither refuses to run. broken: stored as failed or skipped targets.
    before: an interrupted run, whose verdicts are reused if preset, machine and both files are the same.
    """
    begin = time.monotonic()
    environment = _environment(chosen, about)
    run = Run(
        id=about.part_of or ctx.job_id or f"r_{secrets.token_urlsafe(16)}",
        created_at=ctx.clock(),
        kind=about.kind,
        preset=how.preset.name,
        profile=profile,
        environment=environment,
        failed=[row for row in broken if isinstance(row, Failure)],
        skipped=[row for row in broken if isinstance(row, Skip)],
    )
    with sampler.Sampler(own_pids=_supervisor()) as watch:
        for index, pair in enumerate(chosen):
            run = (before and _taken_over(run, before, pair, how)) or _add(
                ctx, run, pair, how, _reporter(ctx, index, len(chosen))
            )
            so_far = {**environment, "during": watch.summary()}
            if not about.part_of:
                ctx.store.save_run(run.model_copy(update={"environment": so_far}), ctx.job_id)
    environment = {**environment, "during": watch.summary()}
    run = run.model_copy(update={"environment": environment, "seconds": time.monotonic() - begin})
    run = _label(run, not_canonical(environment, environment["during"])) if profile == "strict" else run
    run = with_peaks(ctx, run)
    if not about.part_of:
        ctx.store.save_run(run, ctx.job_id)
    return run


def _environment(chosen: Sequence[Pair], about: About) -> dict[str, Any]:
    """The machine, and the measured commits, if known."""
    environment = manifest.manifest()
    files = [file for pair in chosen for file in (pair.baseline, pair.path)]
    if (commit := commits.measured_commit(files)) is not None:
        environment["commit"] = commit
    return {**environment, "commits": dict(about.commits)} if about.commits else environment


def _label(run: Run, reasons: list[str]) -> Run:
    if not reasons:
        return run
    message = "not canonical: " + "; ".join(reasons)
    flag = Flag(code="not_canonical", severity="warn", message=message, evidence={"reasons": reasons})
    marked = [comparison.model_copy(update={"flags": [*comparison.flags, flag]}) for comparison in run.comparisons]
    return run.model_copy(update={"comparisons": marked})


def _reporter(ctx: Context, index: int, total: int) -> Callable[[float, float, str], None]:
    """Progress of one pair as a share of the whole run."""
    return lambda done, of, message: ctx.progress(index + done / max(of, 1), total, message)


def _taken_over(run: Run, before: Run, pair: Pair, how: Options) -> Run | None:
    """The run with the earlier run's verdict on this pair; None if it has none that is still valid."""
    comparisons = [comparison for comparison in before.comparisons if comparison.label == pair.label]
    hashes = pair.sources()
    if not comparisons or any(before.sources.get(name) != value for name, value in hashes.items()):
        return None
    facts = {flag.code: flag.evidence for flag in comparisons[0].flags}
    nodes = how.nodes.count if distributed.declared(pair.baseline) > 1 else 1
    if facts.get("rank_env", {}) != dict(how.variables) or facts.get("ranks_over_nodes", {}).get("nodes", 1) != nodes:
        return None
    if (before.preset, comparisons[0].disclosed.get("size")) != (run.preset, how.of(pair.target).size):
        return None
    if manifest.manifest_difference(_lasting(before), _lasting(run)):
        return None
    update = {"comparisons": [*run.comparisons, comparisons[0]], "sources": {**run.sources, **hashes}}
    return run.model_copy(update=update)


def _lasting(run: Run) -> dict[str, object]:
    return {key: value for key, value in run.environment.items() if key not in ("during", "noise")}


def _add(ctx: Context, run: Run, pair: Pair, how: Options, report: orchestrator.Report) -> Run:
    if failure := barred(ctx, pair):
        return run.model_copy(update={"failed": [*run.failed, failure]})
    run = run.model_copy(update={"sources": {**run.sources, **_sources(pair, how.folder)}})
    try:
        result = orchestrator.compare(pair, how.of(pair.target), report)
    except BenchmarkError as error:
        failure = Failure(target=pair.label, code=error.code, message=error.message, hint=error.hint)
        return run.model_copy(update={"failed": [*run.failed, failure]})
    if isinstance(result, Skip):
        return run.model_copy(update={"skipped": [*run.skipped, result]})
    keep(ctx, pair, result, run.id)
    return run.model_copy(update={"comparisons": [*run.comparisons, origin.disclosed(result, pair.baseline)]})


def _sources(pair: Pair, folder: Path) -> dict[str, str]:
    """Store the current files next to the log; return their SHA-256 by path in the folder."""
    hashes = {}
    for name, path in pair.files().items():
        text = path.read_bytes()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
        hashes[name] = hashlib.sha256(text).hexdigest()
    return hashes


def require_some(run: Run) -> None:
    """Raise an error if nothing could be measured: AispError NOTHING_MEASURED, or the only failure."""
    if run.comparisons or run.skipped:
        return
    if len(run.failed) == 1:
        raise selection.unusable(run.failed[0])
    reasons = "; ".join(f"{failure.target}: {failure.message}" for failure in run.failed[:5])
    raise AispError("NOTHING_MEASURED", f"None of the targets could be measured. {reasons}")


def _record(ctx: Context, pair: Pair) -> Path:
    digest = pair.candidate_sha256()
    return ctx.settings.home / "quarantine" / f"{digest[:16]}.json"


def barred(ctx: Context, pair: Pair) -> Failure | None:
    """Reason why this candidate is not run, or None. A record that a person has damaged still bars it."""
    record = _record(ctx, pair)
    if not record.exists():
        return None
    try:
        known = json.loads(record.read_text("utf-8"))
        why = f"run {known['run']}, {known['sentence']}"
    except (ValueError, KeyError, TypeError):
        why = "its record cannot be read"
    return Failure(
        target=pair.label,
        code="QUARANTINED",
        message=f"This candidate was judged invalid before and is not run again: {why}.",
        hint=f"Read the evidence; to clear it, a person deletes {record}.",
    )


def keep(ctx: Context, pair: Pair, comparison: Comparison, run_id: str) -> None:
    """Bar a candidate that was judged invalid, with the evidence."""
    if comparison.verdict is not Verdict.INVALID:
        return
    evidence = {
        "run": run_id,
        "target": pair.label,
        "sentence": comparison.sentence,
        "flags": [flag.model_dump(mode="json") for flag in comparison.flags],
        "log": comparison.log_path,
        "log_sha256": comparison.log_sha256,
        "at": ctx.clock(),
    }
    record = _record(ctx, pair)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(record, json.dumps(evidence, indent=1))


BUSY_SHARE = 0.10
STEAL_SHARE = 0.005


def not_canonical(manifest: dict[str, Any], during: dict[str, Any]) -> list[str]:
    """Reasons in words; empty on a canonical machine.

    manifest: from system.manifest. during: the summary of system.sampler over the measurement.
    """
    around, limits, settings = manifest["surroundings"], manifest["limits"], manifest["settings"]
    reasons = []
    if around.get("hypervisor"):
        reasons.append(f"virtualised ({around['hypervisor']})")
    if limits.get("cpus"):
        reasons.append(f"CPU quota of {limits['cpus']} cores")
    if settings.get("governor") != "performance":
        reasons.append(f"CPU governor is {settings.get('governor')}")
    if (during.get("steal_share") or 0.0) > STEAL_SHARE:
        reasons.append(f"{during['steal_share']:.1%} of CPU time was stolen")
    waiting = (during.get("pressure") or {}).get("cpu_some") or 0.0
    if waiting > BUSY_SHARE:
        reasons.append(f"tasks waited for a CPU {waiting:.0%} of the time")
    return reasons + [flag["message"] for flag in during.get("flags", []) if flag.get("severity") == "fatal"]


BEYOND_CACHE = 4  # a call that moves this many times the last-level cache is bound by memory bandwidth
AUDIT_FROM = 1.05  # a ceiling is itself measured, to a few per cent
_KINDS = ("copy", "read", "write", "triad")


def with_peaks(ctx: Context, run: Run) -> Run:
    """The run with each comparison's share of its ceiling, and a flag if more than the ceiling was reached."""
    return run.model_copy(update={"comparisons": [_placed(ctx, run, comparison) for comparison in run.comparisons]})


def _placed(ctx: Context, run: Run, comparison: Comparison) -> Comparison:
    share = ceiling(ctx, run, comparison)
    if share is None:
        return comparison
    flags = [*comparison.flags, _audit(share)] if share.share > AUDIT_FROM else comparison.flags
    clause = f"; {100 * share.share:.0f} % of this machine's best {share.what}" if comparison.peak is None else ""
    return comparison.model_copy(update={"peak": share, "flags": flags, "sentence": comparison.sentence + clause})


def ceiling(ctx: Context, run: Run, comparison: Comparison) -> PeakShare | None:
    """The ceiling that limits this candidate most. None without declared work, a time, or a measured ceiling."""
    figures = comparison.optimized
    if figures is None:
        return None
    key = str(run.gpus[0].get("uuid")) if run.gpus else "cpu"
    shares = []
    product = _best(ctx, [f"gemm_{unit}" for unit in _types(comparison)], key)
    memory = _best(ctx, [f"bandwidth_{kind}" for kind in _KINDS], key)
    rate, moved = figures.flops_per_s or 0.0, figures.bytes_per_s or 0.0
    beyond = moved * figures.time_s > BEYOND_CACHE * _cache_bytes(run.gpus)
    if memory and moved and beyond:
        shares.append(_share(memory.kind, moved, memory.value))
    if product and rate:
        share = _share(product.kind, rate, product.value)
        by_memory = memory is not None and rate * memory.value < moved * product.value
        if beyond or not by_memory or share.share > AUDIT_FROM:  # else caches, which have no ceiling, are the limit
            shares.append(share)
    return max(shares, key=lambda each: each.share, default=None)


def _types(comparison: Comparison) -> list[str]:
    """The type of the inputs; every type if the contract allows an approximation, so that narrower ones are fair."""
    if comparison.verification is not None and comparison.verification.oracle == "approximate":
        return list(dict.fromkeys(roofline.UNITS.values()))
    unit = roofline.dtype(comparison)
    return [unit] if unit else []


def _best(ctx: Context, kinds: list[str], key: str) -> Ceiling | None:
    """The highest ceiling of these kinds that was measured on the device."""
    ceilings = [best for kind in kinds if (best := ctx.store.best_measurement(kind, key))]
    return max(ceilings, key=lambda each: each.value, default=None)


def _share(kind: str, rate: float, most: float) -> PeakShare:
    return PeakShare(kind=kind, share=rate / most, rate=rate, ceiling=most)


def _cache_bytes(gpus: list[dict[str, object]]) -> float:
    """Bytes of the last cache before memory; infinite if unknown, so that memory bandwidth does not count
    as a bound.
    """
    if gpus:
        facts = load.gpu(str(gpus[0].get("name")))
        return facts.l2_bytes if facts is not None and facts.l2_bytes else float("inf")
    sizes = [cache.size_bytes for cache in cpu.read().caches if cache.size_bytes]
    return max(sizes, default=float("inf"))


def _which(peak_share: PeakShare) -> str:
    return "which arithmetic did it use" if peak_share.is_product else "which of the bytes did it not move"


def _audit(peak_share: PeakShare) -> Flag:
    message = (
        f"{100 * peak_share.share:.0f} % of the best {peak_share.what} measured on this machine: "
        f"{_which(peak_share)}, or is more work declared than done? Measure the ceiling again on the idle machine "
        "(aisp_bench_peak), then audit work(), the tolerance and the candidate."
    )
    return Flag(code="above_ceiling", severity="warn", message=message, evidence=peak_share.model_dump())
