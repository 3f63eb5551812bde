"""Compare stored runs: changes, suspicious results, and calls to run next."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Params
from aisp_mcp.runs.changes.records import RunComparison, Triage
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, tool
from aisp_mcp.store.records.run import Run


class CompareParams(Params):
    baseline: str = Field(max_length=200)
    candidate: str = Field(max_length=200)
    any_preset: bool = Field(default=False, description="Also quick with default.")


@tool(
    cli="bench compare-runs",
    effect=READS,
    cost=MS,
    next=("aisp_benchmark_triage",),
    verdict=True,
    chart="changes",
    listed="default",
)
def aisp_benchmark_compare_runs(p: CompareParams, ctx: Context) -> RunComparison:
    """Judge each benchmark of two runs: change, interval, adjusted p, missing ones, conditions.

    Runs under different conditions (load, preset, cores, versions, isolation, clock) are not judged; the answer then
    has the call that measures both again, interleaved.
    """
    from aisp_mcp.runs.changes.triage import compared, of_its_kind

    if p.baseline == p.candidate:
        raise UsageError("SAME_RUN", "A run cannot be compared with itself.", "Name two runs.")
    before, after = (ctx.store.run(Run, name, ctx.sees) for name in (p.baseline, p.candidate))
    answer = compared(before, after, p.any_preset)
    return answer.model_copy(update={"again": of_its_kind(ctx, after, answer.again)})


class TriageParams(Params):
    run_id: str = Field(default="last", max_length=200)
    against: str | None = Field(default=None, max_length=200, description="An earlier run.")


@tool(
    cli="bench triage", effect=READS, cost=MS, next=("aisp_run_benchmarks", "aisp_benchmark_export"), listed="default"
)
def aisp_benchmark_triage(p: TriageParams, ctx: Context) -> Triage:
    """Find regressions and suspects in a run, and the next command, with evidence."""
    from aisp_mcp.runs.changes.triage import of_its_kind, triage

    if p.against == p.run_id:
        raise UsageError("SAME_RUN", "A run cannot be compared with itself.", "Name an earlier run, or none.")
    run = ctx.store.run(Run, p.run_id, ctx.sees)
    answer = triage(run, ctx.store.run(Run, p.against, ctx.sees) if p.against else None)
    return answer.model_copy(update={"run_next": of_its_kind(ctx, run, answer.run_next)})
