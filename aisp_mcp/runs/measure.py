"""From target names to a stored run: find, measure, judge, store."""

from __future__ import annotations

import hashlib
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
from aisp_mcp.judge import comparison as orchestrator
from aisp_mcp.judge import distributed
from aisp_mcp.judge.options import Nodes, Options, Policy
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import PRESETS, Preset
from aisp_mcp.judge.records import Skip
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.runs import canonical, commits, peak, quarantine
from aisp_mcp.server.context import Context
from aisp_mcp.settings import ClusterSettings, SensorSettings
from aisp_mcp.store import machine_secret
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.store.records.run_kind import RunKind
from aisp_mcp.suites import selection
from aisp_mcp.suites.adapters import origin
from aisp_mcp.system import manifest, sampler, slurm
from aisp_mcp.system.gpu import nvml


@dataclass(frozen=True)
class About:
    """Kind of a run, and for a gate the ids of its commits: base and head."""

    kind: RunKind = RunKind.BENCH
    commits: Mapping[str, str] = field(default_factory=dict)


SUITE = About()


def preset(name: str, replicates: int | None) -> Preset:
    """The named preset, with another number of replicates if given."""
    known = PRESETS[name]
    return known if replicates is None else replace(known, replicates=replicates, looks=())


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
    )


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
        id=ctx.job_id or f"r_{secrets.token_urlsafe(16)}",
        created_at=ctx.clock(),
        kind=about.kind,
        preset=how.preset.name,
        profile=profile,
        environment=environment,
        failed=[row for row in broken if isinstance(row, Failure)],
        skipped=[row for row in broken if isinstance(row, Skip)],
    )
    with sampler.Sampler() as watch:
        for index, pair in enumerate(chosen):
            run = (before and _taken_over(run, before, pair, how)) or _add(
                ctx, run, pair, how, _reporter(ctx, index, len(chosen))
            )
            so_far = {**environment, "during": watch.summary()}
            ctx.store.save_run(run.model_copy(update={"environment": so_far}), ctx.job_id)
    environment = {**environment, "during": watch.summary()}
    run = run.model_copy(update={"environment": environment, "seconds": time.monotonic() - begin})
    run = _label(run, canonical.not_canonical(environment, environment["during"])) if profile == "strict" else run
    run = peak.with_peaks(ctx, run)
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
    if failure := quarantine.barred(ctx, pair):
        return run.model_copy(update={"failed": [*run.failed, failure]})
    run = run.model_copy(update={"sources": {**run.sources, **_sources(pair, how.folder)}})
    try:
        result = orchestrator.compare(pair, how.of(pair.target), report)
    except BenchmarkError as error:
        failure = Failure(target=pair.label, code=error.code, message=error.message, hint=error.hint)
        return run.model_copy(update={"failed": [*run.failed, failure]})
    if isinstance(result, Skip):
        return run.model_copy(update={"skipped": [*run.skipped, result]})
    quarantine.keep(ctx, pair, result, run.id)
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
