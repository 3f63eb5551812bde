"""Holes in contracts: altered baselines that a target would accept."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.runs.mutants.records import MutantReport
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, tool
from aisp_mcp.suites.records import BenchRoots


class MutantParams(JobParams):
    target: str = Field(description="Such as ch07:row_sum, ch07, or 'labs/*'.")
    size: str = Field(default="small", description="Preset, or rows=1024.")
    seconds: float = Field(default=20.0, gt=0, le=600, description="For the mutants of each target.")
    bench_root: BenchRoots = None


@tool(
    cli="bench mutants",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=4 * 3600),
    needs=("torch",),
    next=("aisp_benchmark_fuzz", "aisp_verify_candidate"),
    verdict=True,
)
def aisp_benchmark_mutants(p: MutantParams, ctx: Context) -> MutantReport:
    """Alter a target's baseline in many ways and list the wrong programs that its contract accepts."""
    from aisp_mcp.runs.mutants import report

    return report.report(ctx, ctx.bench_roots(p.bench_root), p.target, p.size, p.seconds)
