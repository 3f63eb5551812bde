"""Stored runs instead of commits: the files stored with each, laid out as a suite."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.native.launch_header import LANGUAGES
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.runs.commits import Checkout
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind

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
    if run.kind in (RunKind.GATE, RunKind.COMMITS):
        message = f"Run {run.id} compares two commits itself: its programs load the files of two other states."
        raise UsageError("NOTHING_KEPT", message, f"It compared {' with '.join(run.commits.values())}.")
    if run.kind is RunKind.FUNCTIONS:
        message = f"Run {run.id} compared two functions, which import what is around them in their project."
        raise UsageError("NOTHING_KEPT", message, "Compare both versions of the function: aisp bench verify OLD NEW.")


def checkout(ctx: Context, run: Run, folder: Path) -> Checkout:
    """The files that a run measured, as a suite below the folder. Raises UsageError NOTHING_KEPT."""
    stored = ctx.store.run_dir(run.id)
    names = [(_copied(stored, comparison, folder), comparison.label) for comparison in run.comparisons]
    if not any(name for name, _ in names):
        raise UsageError("NOTHING_KEPT", f"Run {run.id} has no files to measure again.", "Measure it anew.")
    return Checkout(run.id, folder, {name: label for name, label in names if name not in ("", label)})


def _copied(stored: Path, comparison: Comparison, folder: Path) -> str:
    """Copy one benchmark's files; return the name that the suite gives to it, empty if there are no files."""
    chapter, _, target = comparison.target.rpartition(":")
    source = stored / "sources" / comparison.label.replace(":", "-").replace("/", "-")
    if not (source / "candidate.py").is_file():
        return ""
    suite = folder / ROOT / chapter
    suite.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "baseline.py", suite / f"baseline_{target}.py")
    suffix = _suffix(comparison)
    language = "" if suffix == ".py" else suffix.replace(".", "_")
    name = comparison.label.rpartition(":")[2].removesuffix(language)
    shutil.copy(source / "candidate.py", suite / f"optimized_{name}{suffix}")
    shutil.copytree(source, suite, ignore=lambda *_: PAIR, dirs_exist_ok=True)  # what these two load
    return f"{chapter}:{name}{language}"


def _suffix(comparison: Comparison) -> str:
    """The suffix of the candidate's file, which every run stores as candidate.py."""
    language = comparison.disclosed.get("build", {}).get("language")
    return next((suffix for suffix, known in LANGUAGES.items() if known == language), ".py")
