"""Profile the baselines and candidates of a run, after everything in it has been measured, judged and stored.

A pass can fail, be refused or run out of time: its own row reports it, and the verdicts do not change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aisp_mcp.errors import AispError, Unavailable, UsageError
from aisp_mcp.judge.pair import Pair
from aisp_mcp.profile import compare, load
from aisp_mcp.profile.insights.engine import insights
from aisp_mcp.profile.pictures import flame_page
from aisp_mcp.profile.readers import ncu, snapshot
from aisp_mcp.profile.recording import find, target_program
from aisp_mcp.profile.recording.commands import LaunchSelection
from aisp_mcp.profile.recording.ran import Depth, Pass, Passes, Profiler, Ran, SidesDiffer
from aisp_mcp.profile.recording.target_program import Subject
from aisp_mcp.profile.records import Profile
from aisp_mcp.profile.timeline import summarize
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.system.gpu import nvml

_PASS_S = 300.0
_LEAST_S = 30.0
_NO_TIME = "NO_TIME: the job's time is up; raise timeout_s."
_PLANS: dict[tuple[str, str], tuple[Profiler, ...]] = {
    ("minimal", "cuda"): ("nsys",),
    ("minimal", "cpu"): ("torch",),
    ("deep_dive", "cuda"): ("nsys", "torch", "memory", "ncu"),
    ("deep_dive", "cpu"): ("torch", "memory", "stacks"),
    ("roofline", "cuda"): ("ncu",),
    ("roofline", "cpu"): (),
}
_KEPT = ("report.", "trace.", "memory.", "stacks.")
_TYPICAL_S = {"nsys": 25.0, "torch": 15.0, "memory": 15.0, "stacks": 10.0, "ncu": 60.0}


def profilers(depth: Depth, device: str, tools: Path) -> tuple[Profiler, ...]:
    """Profilers of a depth on a device; if nsys is missing, torch.profiler makes the lightest trace."""
    plan = _PLANS.get((depth, device), ())
    if plan == ("nsys",):
        try:
            find.program("nsys", tools)
        except Unavailable:
            return ("torch",)
    return plan


def estimate_s(ctx: Context, depth: Depth, pairs: list[Pair]) -> float:
    """Seconds that the passes usually take."""
    programs = len({pair.target for pair in pairs}) + len(pairs)
    return programs * sum(_TYPICAL_S[name] for name in profilers(depth, nvml.benchmark_device(), _tools(ctx)))


def _tools(ctx: Context) -> Path:
    return ctx.settings.home / "tools"


def subjects(run: Run, pairs: list[Pair]) -> list[Subject]:
    """Both programs of every judged pair, as it was judged; a baseline only once, however many candidates it has."""
    judged = {(comparison.target, comparison.candidate): comparison for comparison in run.comparisons}
    by_name: dict[tuple[str, str], Subject] = {}
    for pair in pairs:
        if (verdict := judged.get((pair.target, pair.candidate))) is None:
            continue
        size = str(verdict.disclosed.get("size", ""))
        given = next((flag.evidence for flag in verdict.flags if flag.code == "rank_env"), {})
        for subject in (target_program.subject(pair, role) for role in target_program.ROLES):
            with_size = replace(subject, size=size, variables=tuple(given.items()))
            by_name.setdefault((subject.label, subject.role), with_size)
    return list(by_name.values())


def make(ctx: Context, run: Run, pairs: list[Pair], depth: Depth, ends_at: float) -> Passes | None:
    """All passes, as long as time is left. ends_at: on the monotonic clock, when the job would be killed."""
    if depth == "none":
        return None
    folder = (ctx.run_dir or ctx.store.run_dir(run.id)) / "profiles"
    plan = profilers(depth, nvml.benchmark_device(), _tools(ctx))
    chosen = [(subject, name) for subject in subjects(run, pairs) for name in plan]
    rows = []
    for number, (subject, name) in enumerate(chosen):
        ctx.progress(number, len(chosen), f"{subject.label}: {subject.role} under {name}")
        rows.append(_attempt(ctx, subject, name, depth, folder, ends_at))
    return Passes(folder=str(folder), passes=rows, differences=list(_differences(run, folder, rows, ends_at)))


def _differences(run: Run, folder: Path, rows: list[Pass], ends_at: float) -> Iterator[SidesDiffer]:
    """Each candidate compared with its baseline, if both have a trace of one kind; written next to the candidate's."""
    traces: dict[tuple[str, str], Path] = {}
    for row in rows:
        if row.files and not row.error and row.profiler in ("nsys", "torch"):
            traces.setdefault((row.target, row.side), folder / row.files[-1])
    for comparison in run.comparisons:
        a, b = traces.get((comparison.target, "baseline")), traces.get((comparison.label, "candidate"))
        if a and b and a.name == b.name:
            late = ends_at - time.monotonic() < _LEAST_S
            yield (
                SidesDiffer(target=comparison.label, error=_NO_TIME)
                if late
                else _difference(comparison.label, a, b, folder)
            )


def _difference(name: str, a: Path, b: Path, folder: Path) -> SidesDiffer:
    path, explained = b.parent / "difference.html", None
    try:
        traces = [load.load_trace(path) for path in (a, b)]
        path.write_text(flame_page.difference(traces, f"{name}: candidate against baseline"), "utf-8")
        with suppress(UsageError):  # only for a device's timeline
            explained = compare.compare(*(summarize.profile(trace, "steady") for trace in traces)).explained_by
    except AispError as error:
        return SidesDiffer(target=name, error=f"{error.code}: {error.message}"[:400])
    return SidesDiffer(target=name, file=str(path.relative_to(folder)), explained_by=explained)


def _attempt(ctx: Context, subject: Subject, name: Profiler, depth: Depth, folder: Path, ends_at: float) -> Pass:
    where = folder / f"{subject.label.replace(':', '-').replace('/', '-')}-{subject.role}-{name}"
    row = Pass(target=subject.label, side=subject.role, profiler=name)
    left = ends_at - time.monotonic() - _LEAST_S
    if left < _LEAST_S:
        return row.model_copy(update={"error": _NO_TIME})
    where.mkdir(parents=True, exist_ok=True)
    try:
        profile, ran = _profiled(ctx, subject, name, where, depth, min(_PASS_S, left))
    except AispError as error:
        return row.model_copy(update={"error": f"{error.code}: {error.message}"[:400], "files": _names(where, folder)})
    findings = insights(profile).found if profile else []
    update = {
        "isolation": ran.isolation,
        "ranks": ran.ranks,
        "files": _names(where, folder),
        "finding": findings[0].title if findings else None,
    }
    return row.model_copy(update=update)


def _names(where: Path, folder: Path) -> list[str]:
    """The profiles; the program and its output are next to them."""
    reports = [path for path in where.iterdir() if path.name.startswith(_KEPT)]
    return sorted(str(path.relative_to(folder)) for path in reports)


def _profiled(
    ctx: Context, subject: Subject, name: Profiler, where: Path, depth: Depth, timeout_s: float
) -> tuple[Profile | None, Ran]:
    match name:
        case "nsys":
            path, ran = target_program.nsys(subject, find.program("nsys", _tools(ctx)), where, "light", None, timeout_s)
            return load.load(path, "steady"), ran
        case "torch":
            (trace, _), ran = target_program.torch(subject, where, "full", timeout_s)
            return load.load(trace, "steady"), ran
        case "memory":
            _, ran = target_program.torch(subject, where, "memory", timeout_s)
            return snapshot.read(where / "memory.json"), ran
        case "stacks":
            return None, target_program.stacks(subject, find.program("py-spy", _tools(ctx)), where, timeout_s)[1]
        case "ncu":
            chosen = LaunchSelection("roofline" if depth == "roofline" else "full", count=20, api_range=True)
            pages, ran = target_program.ncu(subject, find.program("ncu", _tools(ctx)), where, chosen, timeout_s)
            return ncu.read(*pages), ran
