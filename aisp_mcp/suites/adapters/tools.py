"""Benchmarks of other suites, as pairs of files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import RUNS, JobParams, JobSpec, Plan, S, tool
from aisp_mcp.suites.adapters.records import Adapted

FormatName = Literal["kernelbench", "flashinfer", "gpumode", "get_benchmark", "algotune", "pytest_benchmark"]
Sizes = dict[str, float | list[float]]
ToleranceName = Literal["own", "problem"]
TOLERANCE = "The judge's, or as declared."
ModeName = Literal["constructed", "eval"]
MODE = "Of its modules."
RECIPE = "Inputs to draw; * for all."


def _own(ctx: Context) -> Path:
    """The run's folder."""
    return ctx.run_dir or ctx.settings.home / "runs" / "direct"


class ProblemParams(JobParams):
    """Arguments for adapting another suite's problem."""

    format: FormatName | None = Field(default=None, description="Default: recognised.")
    set: Sizes = Field(default_factory=dict, description='Such as {"N": 256}.')
    recipe: list[str] = Field(default_factory=list, max_length=100, description=RECIPE)
    tolerance: ToleranceName = Field(default="own", description=TOLERANCE)
    mode: ModeName = Field(default="constructed", description=MODE)


class AdaptParams(ProblemParams):
    path: str = Field(max_length=4096, description="File or folder, or FORMAT:PATH.")
    to: str | None = Field(default=None, max_length=4096, description="For the pairs. Default: the run's.")
    candidates: list[str] = Field(default_factory=list, max_length=100, description="Default: those next to it.")


def _estimate_adapt(p: AdaptParams, _: Context) -> Plan:
    """Refuse paths with nothing to read before a job starts. Raises UsageError NO_PROBLEM."""
    from aisp_mcp.suites.adapters import formats

    formats.require_readable(formats.split(p.path)[1], *(Path(candidate).expanduser() for candidate in p.candidates))
    return Plan(argv=[], timeout_s=p.timeout_s or 3600, resources=[])


@tool(
    cli="bench adapt",
    effect=RUNS,
    cost=S,
    job=JobSpec(timeout_s=3600),
    needs=("torch",),
    estimate=_estimate_adapt,
    next=("aisp_run_benchmarks",),
)
def aisp_benchmark_adapt(p: AdaptParams, ctx: Context) -> Adapted:
    """Turn benchmarks of other suites (KernelBench, FlashInfer-Trace, …) into pairs with secret, fresh inputs.

    The problem's code runs only in an isolated child process, twice, to record shapes, types and distributions.
    """
    from aisp_mcp.server import files
    from aisp_mcp.suites.adapters import adapt

    constants = {name: adapt.number_or_list(value) for name, value in p.set.items()}
    candidates = [Path(candidate).expanduser() for candidate in p.candidates]
    request = adapt.AdaptRequest(p.path, p.format, candidates, constants, p.recipe, p.tolerance, p.mode)
    folder = files.folder(p.to, _own(ctx) / "adapted", ctx.allow_write)
    return adapt.adapt(ctx, request, folder)
