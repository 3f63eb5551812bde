"""Stored runs: list them, and give them names, tags and notes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Params
from aisp_mcp.runs.listing.records import RunLine, RunPage
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, WRITES, tool
from aisp_mcp.store.records.run import Run


class RunsParams(Params):
    tag: str | None = Field(default=None, max_length=60, description="Only runs with this tag.")
    query: str | None = Field(default=None, max_length=200, description="Text in name, targets or note.")
    kind: Literal["bench", "verify", "functions", "gate", "optimize"] | None = None
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, description="Last page's next_cursor.")


@tool(cli="bench runs", effect=READS, cost=MS, next=("aisp_benchmark_export", "aisp_benchmark_compare_runs"))
def aisp_benchmark_runs(p: RunsParams, ctx: Context) -> RunPage:
    """List stored runs, newest first, with targets, verdicts, names and tags.

    Wherever a tool takes a run, `last`, `last~1` (the one before) and a run's name work as well as its id.
    """
    from aisp_mcp.runs.listing import pages
    from aisp_mcp.store.records.verdict_row import RunKind

    if p.cursor is not None and not (p.cursor.isascii() and p.cursor.isdigit() and len(p.cursor) < 19):
        raise UsageError("BAD_CURSOR", "This cursor was not made by aisp_benchmark_runs.", "Leave it out.")
    kind = RunKind(p.kind) if p.kind else None
    return pages.page(ctx, p.tag, p.query, p.limit, int(p.cursor) if p.cursor else None, kind)


class LabelParams(Params):
    run_id: str = Field(max_length=200)
    name: str | None = Field(default=None, max_length=60)
    tag: list[str] = Field(default_factory=list, max_length=20)
    note: str | None = Field(default=None, max_length=2000)


@tool(cli="bench label", effect=WRITES, cost=MS, next=("aisp_benchmark_runs",))
def aisp_benchmark_label(p: LabelParams, ctx: Context) -> RunLine:
    """Give a stored run a name, tags or a note."""
    from aisp_mcp.runs.listing import labels, pages

    if p.name is None and not p.tag and p.note is None:
        raise UsageError("NO_LABEL", "Give a name, a tag or a note.", "name: 'before the change'")
    run = ctx.store.run(Run, p.run_id, ctx.sees)
    tags = [*run.tags, *p.tag]
    return pages.line(labels.labelled(ctx, run, run.name if p.name is None else p.name, tags, p.note))
