"""Stored runs instead of commits: the files stored with each, laid out as a suite."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.records.run import Run
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run_kind import RunKind

ROOT = "benchmarks"
PAIR = ("baseline.py", "candidate.py")
_RUN = re.compile(r"(?:[jr]_[\w-]+|last(?:~\d+)?)")


def runs(ctx: Context, base: str, head: str | None) -> tuple[Run, Run] | None:
    """Both runs, if base and head name stored runs and not revisions. Raises NotFound UNKNOWN_RUN, UsageError
    NOTHING_KEPT.
    """
    if head is None or not (_RUN.fullmatch(base) and _RUN.fullmatch(head)):
        return None
    both = ctx.store.run(Run, base, ctx.sees), ctx.store.run(Run, head, ctx.sees)
    for run in both:
        _refuse_unkept(run)
    return both


def _refuse_unkept(run: Run) -> None:
    """Refuse a run whose programs load files that were elsewhere. Raises UsageError NOTHING_KEPT."""
    if run.kind is RunKind.GATE:
        message = f"Run {run.id} is a gate itself: its programs load the files of two other states."
        raise UsageError("NOTHING_KEPT", message, f"It compared {' with '.join(run.commits.values())}.")
    if run.kind is RunKind.FUNCTIONS:
        message = f"Run {run.id} compared two functions, which import what is around them in their project."
        raise UsageError("NOTHING_KEPT", message, "Compare both versions of the function: aisp bench verify OLD NEW.")


def checkout(ctx: Context, run: Run, folder: Path) -> Checkout:
    """The files that a run measured, as a suite below the folder. Raises UsageError NOTHING_KEPT."""
    copied = [_copied(ctx.store.run_dir(run.id), comparison, folder) for comparison in run.comparisons]
    if not any(copied):
        raise UsageError("NOTHING_KEPT", f"Run {run.id} has no Python files to measure again.", "Measure it anew.")
    return Checkout(run.id, folder)


def _copied(stored: Path, comparison: Comparison, folder: Path) -> bool:
    """Copy one benchmark's files, except C++ and CUDA candidates, whose file type is not recorded."""
    chapter, _, name = comparison.target.rpartition(":")
    source = stored / "sources" / comparison.label.replace(":", "-").replace("/", "-")
    candidate = source / "candidate.py"
    if not candidate.is_file() or candidate.read_bytes().lstrip().startswith((b"/*", b"//")):
        return False
    suite = folder / ROOT / chapter
    suite.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "baseline.py", suite / f"baseline_{name}.py")
    variant = f"_{comparison.candidate}" if comparison.candidate else ""
    shutil.copy(candidate, suite / f"optimized_{name}{variant}.py")
    shutil.copytree(source, suite, ignore=lambda *_: PAIR, dirs_exist_ok=True)  # what these two load
    return True
