"""Correctness over sizes: candidates compared with float64, without any timing."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.runs.fuzz.records import FuzzReport
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, tool
from aisp_mcp.suites.records import BenchRoots


class FuzzParams(JobParams):
    target: str = Field(description="Such as ch06:vector_add, or ch06:vector_add_cpp.")
    candidate: str | None = Field(default=None, max_length=200_000, description="Any file with run(), or its text.")
    grid: list[str] = Field(default_factory=list, max_length=20, description="Such as S=448,512.")
    boundaries: bool = Field(default=True, description="Also odd sizes, and one beyond the grid's ends.")
    strides: bool = Field(default=False, description="Also inputs with column-major strides.")
    bench_root: BenchRoots = None


@tool(
    cli="bench fuzz",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=3600),
    needs=("torch",),
    next=("aisp_verify_candidate",),
    verdict=True,
)
def aisp_benchmark_fuzz(p: FuzzParams, ctx: Context) -> FuzzReport:
    """Compare candidates with float64 at many sizes, on plain and adversarial inputs; nothing is timed."""
    from aisp_mcp.runs import measure
    from aisp_mcp.runs.fuzz import fuzz

    options = measure.options(ctx, measure.preset("quick", None))
    pairs = fuzz.chosen(ctx.bench_roots(p.bench_root), p.target, p.candidate, options)
    return fuzz.test(ctx, pairs, options, fuzz.FuzzRequest(p.grid, p.boundaries, p.strides))
