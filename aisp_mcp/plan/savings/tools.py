"""Costs and benefits of optimisations: prices, savings, techniques."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.plan.records import Count, Planned, Positive
from aisp_mcp.plan.savings.cost import Cost, Load
from aisp_mcp.plan.savings.estimates import Catalogue, Recommendation, Roi, Savings
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, tool

Goal = Literal["speed", "memory", "throughput", "latency"]
Workload = Literal["training", "inference"]


class CostParams(Params):
    gpu: str | None = None
    gpus: Count = 1
    hours: Positive | None = None
    throughput: Positive | None = Field(default=None, description="Tokens/s, all GPUs.")
    usd_per_gpu_hour: float | None = Field(default=None, ge=0)
    spot: bool = False
    provider: str | None = None
    avg_power: Positive | None = Field(default=None, description="Watts, all GPUs.")
    electricity_cost: Positive | None = Field(default=None, description="USD per kWh.")
    allow_old: bool = False


@tool(cli="cost estimate", effect=READS, cost=MS, next=("aisp_bench_cost", "aisp_gpu_power"))
def aisp_cost_estimate(p: CostParams, ctx: Context) -> Planned[Cost]:
    """Estimate cost per hour, run and million tokens: dated list price or yours; electricity separate."""
    from aisp_mcp.plan.savings import estimates

    load = Load(
        gpus=p.gpus, hours=p.hours, tokens_per_s=p.throughput, watts=p.avg_power, usd_per_kwh=p.electricity_cost
    )
    return estimates.estimate(ctx, load, p.gpu, p.usd_per_gpu_hour, p.spot, p.allow_old, p.provider)


class BenchCostParams(Params):
    gpu: str | None = Field(default=None, description="Runs on this GPU; H100 means every variant.")
    limit: Count = 10
    usd_per_hour: Positive | None = None


@tool(cli="bench cost", effect=READS, cost=MS, next=("aisp_optimize_roi", "aisp_run_benchmarks"))
def aisp_bench_cost(p: BenchCostParams, ctx: Context) -> Planned[Savings]:
    """Compute the cost per million calls of stored comparisons and each candidate's savings."""
    from aisp_mcp.plan.savings import estimates

    return estimates.cost_table(ctx, p.gpu, p.usd_per_hour, p.limit)


class RoiParams(Params):
    calls_per_day: Positive
    effort_usd: Positive
    usd_per_hour: Positive | None = None
    limit: Count = 10


@tool(cli="optimize roi", effect=READS, cost=MS, next=("aisp_bench_cost",))
def aisp_optimize_roi(p: RoiParams, ctx: Context) -> Planned[Roi]:
    """Compute the days until measured gains pay for their effort; from stored comparisons only."""
    from aisp_mcp.plan.savings import estimates

    return estimates.roi(ctx, p.calls_per_day, p.effort_usd, p.usd_per_hour, p.limit)


class TechniquesParams(Params):
    goal: Goal | None = None
    workload: Workload | None = None


@tool(cli="optimize techniques", effect=READS, cost=MS, next=("aisp_recommend",))
def aisp_optimize_techniques(p: TechniquesParams, ctx: Context) -> Planned[Catalogue]:
    """List optimisation techniques: requirements, conflicts, published effect, benchmark pair."""
    from aisp_mcp.plan.savings import estimates

    return estimates.catalogue(p.goal, p.workload)


class RecommendParams(Params):
    goal: Goal = "speed"
    workload: Workload = "training"
    gpu: str | None = None
    gpus: Count = 1
    limit: Count = 5


@tool(cli="recommend", effect=READS, cost=MS, next=("aisp_run_benchmarks", "aisp_optimize_techniques"))
def aisp_recommend(p: RecommendParams, ctx: Context) -> Planned[Recommendation]:
    """Rank techniques for a goal on this hardware; this machine's own measurements come first."""
    from aisp_mcp.errors import Unavailable
    from aisp_mcp.plan import lookup
    from aisp_mcp.plan.savings import estimates

    try:
        facts = lookup.gpu(p.gpu)
    except Unavailable:  # no GPU here and none named: techniques that need one are excluded for that reason
        facts = None
    return estimates.recommend(ctx, p.goal, p.workload, facts, p.gpus, p.limit)
