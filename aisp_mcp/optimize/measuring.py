"""Measurements of an optimisation: candidates in folders of their own, and processes that wait for them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aisp_mcp.judge import comparison
from aisp_mcp.judge.loading import common_of
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.optimize import workspace
from aisp_mcp.optimize.records import CANDIDATES, SPEC, WARM, Started
from aisp_mcp.runs import measure
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import JobState
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

# What a submission imports when it is called, in part to describe the machine.
LOADED = (__name__, "aisp_mcp.optimize.sessions", "aisp_mcp.store.database", "pynvml", "email.parser")


def keep_libraries_loaded(ctx: Context, started: Started, folder: Path) -> None:
    """Start the processes that load libraries for all submissions, and their jobs, until the session ends."""
    options, seconds = _options(ctx, started, started.preset), 60 * started.budget.minutes
    baseline = folder.parent / SPEC / started.baseline
    if comparison.keep_libraries_loaded(options, folder, seconds, baseline):
        ctx.jobs.keep_ready("aisp_optimize_submit", LOADED, folder, seconds)


def measured(
    ctx: Context, started: Started, home: Path, numbers: Sequence[int], preset: str, followed: bool = False
) -> Run:
    """One run of these candidates, each in a separate folder. home: of the optimisation. followed: others may come."""
    options = _options(ctx, started, preset)
    spec, pairs = home / SPEC / started.baseline, []
    for number in numbers:
        alone = options.folder / "candidates" / f"{number:03d}"
        alone.mkdir(parents=True, exist_ok=True)
        path = Path(shutil.copy(home / CANDIDATES / f"{number:03d}.py", alone / "candidate.py"))
        baseline = spec
        workspace.copy_problem(spec, alone)
        if (common := common_of(spec)).is_file():  # a candidate sees only its own folder of the store
            shutil.copy(common, alone)
            baseline = Path(shutil.copy(spec, alone))
        pairs.append(Pair(started.target, baseline, f"{started.id}_{number:03d}", path.resolve()))

    def is_followed() -> bool:
        waiting, _ = ctx.store.list_jobs(JobState.QUEUED, limit=1)
        return followed and not waiting

    with comparison.loaded_in(home / WARM, is_followed):
        return measure.measure(ctx, pairs, options, about=measure.About(RunKind.OPTIMIZE))


def _options(ctx: Context, started: Started, preset: str) -> Options:
    options = measure.options(ctx, measure.preset(preset, None), margin=started.margin)
    return replace(options, policy=replace(options.policy, hidden=tuple(map(Path, started.hidden))))


def failure(run: Run) -> str:
    """The reason why a run has no verdict."""
    if run.skipped:
        return f"needs {run.skipped[0].missing}"
    return f"{run.failed[0].code}: {run.failed[0].message}"
