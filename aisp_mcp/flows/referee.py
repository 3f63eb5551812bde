"""From target names to a stored run: find, measure, judge, keep."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aisp_mcp.context import Context
from aisp_mcp.errors import AispError, BenchmarkError, NotFound, Unavailable, UsageError
from aisp_mcp.flows import commits, peak, quarantine, target_names
from aisp_mcp.harness import discovery as suites
from aisp_mcp.harness import groups, rank_env, schedule, sizes, source_facts
from aisp_mcp.harness import runner as orchestrator
from aisp_mcp.harness.config import Nodes, Options, Pair
from aisp_mcp.harness.schedule import PRESETS, Preset
from aisp_mcp.harness.sizes import Sizes
from aisp_mcp.harness.timing.group import GroupStrategy
from aisp_mcp.model.run import Failure, Run, Skip
from aisp_mcp.model.verdict import Flag
from aisp_mcp.model.workload import Variant
from aisp_mcp.settings import ClusterSettings, SensorSettings
from aisp_mcp.system import canonical, manifest, nvml, sampler, slurm, software


def preset(name: str, replicates: int | None) -> Preset:
    """The named preset, with another number of replicates if given."""
    found = PRESETS[name]
    return found if replicates is None else replace(found, replicates=replicates, looks=())


def estimate_s(pair: Pair, chosen: Preset) -> float:
    """Expected wall seconds of one pair at most; sides of several ranks have longer rounds and starts."""
    if groups.declared(pair.baseline) == 1:
        return schedule.estimate_s(chosen)
    return schedule.estimate_s(GroupStrategy().adapt(chosen), start_s=5.0)


def pairs(roots: suites.Roots, names: list[str]) -> tuple[list[Pair], list[Failure | Skip]]:
    """All (baseline, candidate) pairs of the named targets.

    A file that cannot be used is a Failure, a variant that needs what this machine lacks is a Skip: no exceptions.
    """
    found: dict[str, Pair] = {}
    broken: dict[str, Failure | Skip] = {}
    for wanted in target_names.read(names):
        pairs, unusable = _selected(roots, wanted)
        found |= {pair.label: pair for pair in pairs}
        broken |= {one.target: one for one in unusable}
    return list(found.values()), list(broken.values())


def _selected(roots: suites.Roots, wanted: target_names.Wanted) -> tuple[list[Pair], list[Failure | Skip]]:
    found: list[Pair] = []
    broken: list[Failure | Skip] = []
    for target, variants in target_names.resolve(roots, wanted.name):
        if target.problem:
            broken.append(Failure(target=target.name, code="UNREADABLE", message=target.problem))
            continue
        if not variants:
            broken.append(
                Failure(target=target.name, code="NO_CANDIDATE", message="No optimized_ file lies beside it.")
            )
        for variant in variants:
            name = suites.full_name(target, variant)
            if wanted.file not in (None, Path(variant.path).name):
                continue
            if variant.problem:
                broken.append(Failure(target=name, code="UNREADABLE", message=variant.problem))
            elif missing := _missing(variant):
                broken.append(Skip(target=name, code="NEEDS", missing=missing))
            else:
                found.append(Pair(target.name, Path(target.path), variant.name, Path(variant.path)))
    return found, broken


def _missing(variant: Variant) -> str:
    """The GPUs or packages a variant declares beyond its target's and this machine lacks, in words."""
    lacks = [f"package {name}" for name in str(variant.needs.get("packages", "")).split(", ") if name]
    lacks = [lack for lack in lacks if software.version(lack.removeprefix("package ")) is None]
    if variant.needs.get("gpus") and device() == "cpu":
        lacks.insert(0, f"{variant.needs['gpus']} CUDA device(s)")
    return ", ".join(lacks)


def require_nodes(chosen: Sequence[Pair], asked: ClusterSettings) -> None:
    """Ranks span nodes of a Slurm job, and on CPUs alone. Raises UsageError RANKS_ON_ONE_NODE."""
    ranked = next((pair.label for pair in chosen if groups.declared(pair.baseline) > 1), None)
    if ranked is None or asked.nodes == 1:
        return
    if asked.gpus:
        message = f"All ranks of {ranked} run on one node, not on {asked.nodes}: NCCL over nodes was never tried."
        raise UsageError("RANKS_ON_ONE_NODE", message, "Leave --nodes away, or --gpus: gloo on CPUs spans nodes.")
    if asked.executor != "slurm" and "SLURM_JOB_ID" not in os.environ:
        message = f"The ranks of {ranked} span {asked.nodes} nodes in a Slurm job only."
        raise UsageError("RANKS_ON_ONE_NODE", message, "Add --executor slurm, or leave --nodes away.")


def _nodes(asked: ClusterSettings) -> Nodes:
    """Nodes over which ranks are spread: those of the Slurm job that this process is in, if several were asked for."""
    if asked.nodes == 1 or "SLURM_JOB_ID" not in os.environ:
        return Nodes()
    others, address = slurm.other_nodes(asked.nodes)
    return Nodes(tuple((name, tuple(words)) for name, words in others), address)


def digests(chosen: Sequence[Pair]) -> dict[str, str]:
    """SHA-256 of both files of each pair, by label."""
    return {
        pair.label: hashlib.sha256(pair.baseline.read_bytes() + pair.path.read_bytes()).hexdigest() for pair in chosen
    }


def candidate_pair(roots: suites.Roots, name: str, candidate: str, folder: Path) -> Pair:
    """A pair of a known baseline and any file or source text. Raises NotFound NO_CANDIDATE, and as target_names.one.

    candidate: a path, or a file's text (recognised by its line breaks), which is kept in `folder` as evidence: Python,
    or C++ and CUDA C++, which begin with the comment that holds their launch header.
    """
    target = target_names.one(roots, name)
    path = candidate_file(candidate)
    if path is None:
        path = folder / f"candidate{language(candidate)}"
        path.write_text(candidate, encoding="utf-8")
    return Pair(target.name, Path(target.path), path.stem, path.resolve())


def candidate_file(candidate: str) -> Path | None:
    """The file that a candidate is the path of; None for a text. Raises NotFound NO_CANDIDATE."""
    if "\n" in candidate:
        return None
    path = Path(candidate).expanduser()
    if not path.is_file():
        hint = "Give the path of a Python, C++ or CUDA file, or the text of one: two lines or more."
        raise NotFound("NO_CANDIDATE", f"There is no file {candidate[:200]!r}.", hint)
    return path


def require_candidate(candidate: str) -> None:
    """Refuse what is no file, and a Python text that cannot define run(), before a job starts.

    Raises NotFound NO_CANDIDATE, BenchmarkError UNREADABLE.
    """
    path = candidate_file(candidate)
    if (path.suffix if path else language(candidate)) == ".py":
        facts = source_facts.read(path.read_bytes() if path else candidate.encode(), ".py", baseline=False)
        if facts.problem:
            raise BenchmarkError("UNREADABLE", f"{path.name if path else 'The candidate'}: {facts.problem}.")


def language(text: str) -> str:
    """Suffix of a candidate that is given as text."""
    if not text.lstrip().startswith("/*"):
        return ".py"
    return ".cu" if "cudaStream_t" in text else ".cpp"


def device() -> str:
    """cuda where NVML sees a GPU and CUDA_VISIBLE_DEVICES does not hide all of them, else cpu."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return "cuda" if nvml.gpu_uuids() and not hidden else "cpu"


def options(
    ctx: Context,
    chosen: Preset,
    isolation: str = "auto",
    margin: float | None = None,
    values: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> Options:
    """Options of a measurement on this machine: small sizes on a CPU, default ones on a GPU.

    values: sizes that replace those of the preset, such as rows=1024, or ch07:row_sum:rows=1024 for one target.
    variables: of ranks. Raises UsageError BAD_SIZES, BAD_RANK_ENV.
    """
    kind = device()
    preset = "default" if kind == "cuda" else "small"
    common = dict(sizes.value(text) for text in values if ":" not in text)
    own = [(text.rpartition(":")[0], sizes.value(text.rpartition(":")[2])) for text in values if ":" in text]
    of_target = {target: common | dict(one for name, one in own if name == target) for target, _ in own}
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
        own_sizes=tuple((target, Sizes(preset, found).text()) for target, found in of_target.items()),
        variables=rank_env.read(variables),
        nodes=_nodes(ClusterSettings.from_env()),
    )


def measure(
    ctx: Context,
    chosen: list[Pair],
    how: Options,
    profile: str = "portable",
    broken: Sequence[Failure | Skip] = (),
    before: Run | None = None,
) -> Run:
    """Measure the pairs one after another and keep the run after each. Each pair's trouble stays its own.

    profile: strict adds to every comparison a flag with the reasons for which this machine is no canonical place to
    measure; portable only records them. Neither refuses to work. broken: kept as failed or skipped targets. before: a
    run that was cut off; what it judged is taken over where preset, machine and both files are the same.
    """
    begin = time.monotonic()
    environment = manifest.manifest()
    files = [file for pair in chosen for file in (pair.baseline, pair.path)]
    if (commit := commits.measured_commit(files)) is not None:
        environment["commit"] = commit
    run = Run(
        id=ctx.job_id or f"r_{secrets.token_urlsafe(16)}",
        created_at=ctx.clock(),
        preset=how.preset.name,
        profile=profile,
        environment=environment,
        failed=[one for one in broken if isinstance(one, Failure)],
        skipped=[one for one in broken if isinstance(one, Skip)],
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


def _label(run: Run, reasons: list[str]) -> Run:
    if not reasons:
        return run
    message = "not canonical: " + "; ".join(reasons)
    flag = Flag(code="not_canonical", severity="warn", message=message, evidence={"reasons": reasons})
    marked = [one.model_copy(update={"flags": [*one.flags, flag]}) for one in run.comparisons]
    return run.model_copy(update={"comparisons": marked})


def _reporter(ctx: Context, index: int, total: int) -> Callable[[float, float, str], None]:
    """Progress of one pair as a share of the whole run."""
    return lambda done, of, message: ctx.progress(index + done / max(of, 1), total, message)


def _taken_over(run: Run, before: Run, pair: Pair, how: Options) -> Run | None:
    """The run with the earlier run's verdict on this pair; None where it has none that holds here and now."""
    found = [one for one in before.comparisons if one.label == pair.label]
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in _files(pair).items()}
    if not found or any(before.sources.get(name) != value for name, value in hashes.items()):
        return None
    told = {flag.code: flag.evidence for flag in found[0].flags}
    nodes = how.nodes.count if groups.declared(pair.baseline) > 1 else 1
    if told.get("rank_env", {}) != dict(how.variables) or told.get("ranks_over_nodes", {}).get("nodes", 1) != nodes:
        return None
    if (before.preset, found[0].disclosed.get("size")) != (run.preset, how.of(pair.target).size):
        return None
    if manifest.manifest_difference(_lasting(before), _lasting(run)):
        return None
    kept = {"comparisons": [*run.comparisons, found[0]], "sources": {**run.sources, **hashes}}
    return run.model_copy(update=kept)


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
    return run.model_copy(update={"comparisons": [*run.comparisons, result]})


def _sources(pair: Pair, folder: Path) -> dict[str, str]:
    """Keep the files, as they are now, beside the log; their SHA-256 by path in the folder."""
    found = {}
    for name, path in _files(pair).items():
        text = path.read_bytes()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
        found[name] = hashlib.sha256(text).hexdigest()
    return found


def _files(pair: Pair) -> dict[str, Path]:
    """Files of a pair, with what both share, by their place in a run's folder."""
    place = Path("sources", pair.label.replace(":", "-").replace("/", "-"))
    common = pair.baseline.with_name("_common.py")
    shared = {str(place / common.name): common} if common.is_file() else {}
    return {str(place / "baseline.py"): pair.baseline, str(place / "candidate.py"): pair.path, **shared}


def unusable(one: Failure | Skip) -> AispError:
    """The only obstacle of a call as its error."""
    if isinstance(one, Skip):
        return Unavailable(one.code, f"{one.target} needs {one.missing}.")
    return BenchmarkError(one.code, f"{one.target}: {one.message}", one.hint)


def require_some(run: Run) -> None:
    """A run in which nothing could be measured is an error. Raises AispError NOTHING_MEASURED or the only failure."""
    if run.comparisons or run.skipped:
        return
    if len(run.failed) == 1:
        raise unusable(run.failed[0])
    reasons = "; ".join(f"{failure.target}: {failure.message}" for failure in run.failed[:5])
    raise AispError("NOTHING_MEASURED", f"None of the targets could be measured. {reasons}")
