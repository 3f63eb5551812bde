"""Targets and chapters that can be measured, found by reading files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, tool
from aisp_mcp.suites.records import BenchRoots, Chapter, Target

if TYPE_CHECKING:
    from aisp_mcp.suites.here import Here

PAGE = 40


class TargetsParams(Params):
    chapter: str | None = Field(default=None, max_length=200)
    query: str | None = Field(default=None, max_length=200, description="Text in name or summary.")
    cursor: str | None = Field(default=None, max_length=400, description="Last page's next_cursor.")
    bench_root: BenchRoots = None


class TargetLine(Record):
    """One target as a line of a list. variants: the names that select one candidate each."""

    name: str
    summary: str
    goal: str
    variants: list[str]
    runs_here: str = Field(description="yes, or no and what is missing.")
    measured: str | None = Field(default=None, description="Newest verdict here.")
    problems: list[str] = Field(default_factory=list, description="Why the target or a variant cannot be used.")


class TargetPage(Record):
    """A page of targets: your own, then the newest measured here, then the others by chapter and name.

    total: matches on all pages.
    """

    sentence: str
    total: int
    targets: list[TargetLine]
    next_cursor: str | None = None


def _line(target: Target, here: Here) -> TargetLine:
    from aisp_mcp.suites.discovery import full_name

    problems = [target.problem] if target.problem else []
    problems += [f"{full_name(target, variant)}: {variant.problem}" for variant in target.variants if variant.problem]
    return TargetLine(
        name=target.name,
        summary=target.summary,
        goal=target.goal,
        variants=[full_name(target, variant) for variant in target.variants],
        runs_here=here.runs(target),
        measured=here.measured(target),
        problems=problems,
    )


def _mentions(target: Target, text: str) -> bool:
    words = " ".join([target.name, target.summary, *(f"{v.name} {v.summary}" for v in target.variants)])
    return text.casefold() in words.casefold()


def _page(targets: list[Target], cursor: str | None, here: Here) -> TargetPage:
    """The targets after the one that the cursor names. Raises UsageError BAD_CURSOR."""
    names = [target.name for target in targets]
    if cursor is not None and cursor not in names:
        raise UsageError("BAD_CURSOR", f"No target of this list is '{cursor[:80]}'.", "Start again without a cursor.")
    begin = 0 if cursor is None else names.index(cursor) + 1
    shown = targets[begin : begin + PAGE]
    more = shown[-1].name if begin + PAGE < len(targets) else None
    lines = [_line(target, here) for target in shown]
    return TargetPage(sentence=_sentence(targets, here), total=len(targets), targets=lines, next_cursor=more)


def _sentence(targets: list[Target], here: Here) -> str:
    able = [target.name for target in targets if here.runs(target) == "yes"]
    if not able:
        return f"None of {len(targets)} targets runs here." if targets else "No target matches."
    return f"{len(able)} of {len(targets)} targets run here: aisp bench run {able[0]} measures one."


@tool(
    cli="bench list-targets",
    effect=READS,
    cost=MS,
    next=("aisp_run_benchmarks", "aisp_verify_candidate"),
    listed="default",
)
def aisp_benchmark_targets(p: TargetsParams, ctx: Context) -> TargetPage:
    """List benchmark targets, each with its summary, variants, newest verdict, and whether it runs here."""
    from aisp_mcp.suites import names as target_names
    from aisp_mcp.suites.discovery import find_targets
    from aisp_mcp.suites.here import Here

    targets = find_targets(ctx.bench_roots(p.bench_root))
    if p.chapter is not None:
        targets = target_names.in_chapter(targets, p.chapter)
    if p.query:
        targets = [target for target in targets if _mentions(target, p.query)]
    here = Here(ctx)
    return _page(here.sorted(targets), p.cursor, here)


class ChaptersParams(Params):
    bench_root: BenchRoots = None


class Chapters(Record):
    """Folders of benchmarks: chapters and labs."""

    bench_roots: list[str]
    chapters: list[Chapter]


@tool(cli="bench list-chapters", effect=READS, cost=MS, next=("aisp_benchmark_targets",))
def aisp_list_chapters(p: ChaptersParams, ctx: Context) -> Chapters:
    """List chapters and labs with their topics and how many targets each has."""
    from aisp_mcp.suites.discovery import chapters

    roots = ctx.bench_roots(p.bench_root)
    return Chapters(bench_roots=[str(root) for root in roots], chapters=chapters(roots))
