"""Analysis of stored runs: metrics side by side, Pareto frontiers, scaling, combinations, limits and energy."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.records import Params, Record
from aisp_mcp.runs.analysis.metrics import Table
from aisp_mcp.runs.analysis.pareto import METRICS, Front, Metric
from aisp_mcp.runs.analysis.scaling import Scaling
from aisp_mcp.runs.analysis.stacking import Stack
from aisp_mcp.runs.analysis.whatif import Candidate
from aisp_mcp.runs.energy.figures import Reading, RunEnergy
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MS, READS, tool

RunId = Annotated[str | None, Field(max_length=200, description="Default: newest.")]
Runs = Annotated[int, Field(ge=1)]
Rows = Annotated[int, Field(ge=1)]
MOST, FEW = 20, 8  # rows of short and of long answers


class StoredParams(Params):
    run_id: RunId = None
    runs: Runs = 20


class MetricsParams(StoredParams):
    rows: Rows = 6


class Tables(Record):
    """Pairs by improvement of time. left_out: comparisons with wrong outputs, or without times."""

    pairs: list[Table]
    more: int = Field(description="Pairs that `rows` leaves out.")
    left_out: list[str]
    definition: str


@tool(cli="bench analyze", effect=READS, cost=MS, next=("aisp_analyze_pareto", "aisp_benchmark_export"))
def aisp_analyze_metrics(p: MetricsParams, ctx: Context) -> Tables:
    """Compare every stored pair by time, memory, energy, bytes/s, FLOP/s and share of the measured roof."""
    from aisp_mcp.runs import stored
    from aisp_mcp.runs.analysis import metrics
    from aisp_mcp.server.text.numbers import rounded

    measured_pairs, left_out = stored.measured(ctx, p.run_id, p.runs)
    tables = metrics.ranked(measured_pairs)
    shown = Tables(
        pairs=tables[: p.rows],
        more=max(0, len(tables) - p.rows),
        left_out=left_out[:10],
        definition=metrics.DEFINITION,
    )
    return rounded(shown)


class ParetoParams(StoredParams):
    metrics: list[Metric] = Field(default=list(METRICS), min_length=1, max_length=3)
    target: str | None = Field(default=None, max_length=200)


class Fronts(Record):
    """One frontier per target and machine."""

    fronts: list[Front]
    more: int = Field(description="Targets left out; name one.")
    left_out: list[str]
    definition: str


@tool(cli="bench pareto", effect=READS, cost=MS, next=("aisp_analyze_whatif", "aisp_analyze_stacking"))
def aisp_analyze_pareto(p: ParetoParams, ctx: Context) -> Fronts:
    """Find the Pareto frontier of stored variants over time, memory and energy, by intervals."""
    from aisp_mcp.runs import stored
    from aisp_mcp.runs.analysis import pareto, variants
    from aisp_mcp.server.text.numbers import rounded

    measured_pairs, left_out = stored.measured(ctx, p.run_id, p.runs)
    rows = [
        row for row in variants.variants(measured_pairs) if p.target in (None, row.target, row.target.partition("@")[0])
    ]
    if not rows:
        raise stored.nothing(f"No stored run contains {p.target!r}.")
    fronts = pareto.fronts(rows, p.metrics)
    more = max(0, len(fronts) - FEW)
    return rounded(Fronts(fronts=fronts[:FEW], more=more, left_out=left_out[:10], definition=pareto.DEFINITION))


class WhatifParams(StoredParams):
    vram_gb: float | None = Field(default=None, gt=0, description="At most.")
    latency_ms: float | None = Field(default=None, gt=0, description="At most, per call.")
    calls_per_s: float | None = Field(default=None, gt=0, description="At least.")


class Solutions(Record):
    """Variants that meet every limit, and the nearest ones that do not."""

    meets: list[Candidate]
    nearest_misses: list[Candidate]
    judged: int
    definition: str


@tool(cli="bench whatif", effect=READS, cost=MS, next=("aisp_analyze_pareto", "aisp_run_benchmarks"))
def aisp_analyze_whatif(p: WhatifParams, ctx: Context) -> Solutions:
    """List stored variants that meet limits of memory, latency and throughput, and nearest misses."""
    from aisp_mcp.runs import stored
    from aisp_mcp.runs.analysis import variants, whatif
    from aisp_mcp.server.text.numbers import rounded

    if p.vram_gb is p.latency_ms is p.calls_per_s is None:
        raise UsageError("NO_LIMIT", "Give at least one limit.", "aisp bench whatif --vram 24 --latency 100")
    limits = whatif.Limits(
        memory_bytes=None if p.vram_gb is None else p.vram_gb * 1e9,
        latency_s=None if p.latency_ms is None else p.latency_ms * 1e-3,
        calls_per_s=p.calls_per_s,
    )
    rows = variants.variants(stored.measured(ctx, p.run_id, p.runs)[0])
    met, missed = whatif.solve(rows, limits)
    return rounded(
        Solutions(
            meets=met[:FEW],
            nearest_misses=missed[: FEW // 2],
            judged=len(rows),
            definition=whatif.DEFINITION,
        )
    )


class StackingParams(StoredParams):
    a: str | None = Field(default=None, max_length=200, description="Such as ch07:row_sum_tiled.")
    b: str | None = Field(default=None, max_length=200)
    both: str | None = Field(default=None, max_length=200, description="Of a and b; default: by names.")


class Stacks(Record):
    """Combinations whose parts were also measured alone."""

    stacks: list[Stack]
    definition: str


@tool(cli="bench stacking", effect=READS, cost=MS, next=("aisp_verify_candidate", "aisp_analyze_pareto"))
def aisp_analyze_stacking(p: StackingParams, ctx: Context) -> Stacks:
    """Say which optimisations combine, from runs that measured A, B and A+B."""
    from aisp_mcp.runs import stored
    from aisp_mcp.runs.analysis import stacking
    from aisp_mcp.server.text.numbers import rounded

    given = (p.a, p.b, p.both)
    named = (p.a, p.b, p.both) if p.a and p.b and p.both else None
    if any(given) and named is None:
        raise UsageError("MISSING_VALUE", "Name all of a, b and both, or none.", "Without names, all are looked up.")
    measured_pairs, _ = stored.measured(ctx, p.run_id, p.runs)
    rows = stacking.stacks(measured_pairs, named)
    if not rows:
        raise Unavailable(
            "NO_COMBINATION",
            "No stored run contains two optimisations, each alone and both together.",
            "Write optimized_TARGET_A.py, optimized_TARGET_B.py and optimized_TARGET_A_B.py and measure all three.",
            [("aisp_benchmark_targets", {}), ("aisp_run_benchmarks", {"targets": ["*"], "preset": "quick"})],
        )
    return rounded(Stacks(stacks=rows[:MOST], definition=stacking.DEFINITION))


class ScalingParams(StoredParams):
    workers: list[float] = Field(default_factory=list, max_length=200, description="Workers of given points.")
    throughput: list[float] = Field(default_factory=list, max_length=200)
    time_s: list[float] = Field(default_factory=list, max_length=200, description="Instead of throughput.")
    target: str | None = Field(default=None, max_length=200)


class Scalings(Record):
    """One entry per program that was measured at several sizes or GPU counts."""

    scalings: list[Scaling]
    definitions: dict[str, str]


@tool(cli="bench scaling", effect=READS, cost=MS, next=("aisp_predict_scaling", "aisp_hw_nccl"))
def aisp_analyze_scaling(p: ScalingParams, ctx: Context) -> Scalings:
    """Fit Amdahl's law and USL to worker counts, or a power law to stored sizes, with errors."""
    from aisp_mcp.runs.analysis import scaling
    from aisp_mcp.server.text.numbers import rounded

    if p.workers or p.throughput or p.time_s:
        scalings = [scaling.given(p.workers, p.throughput, p.time_s)]
    else:
        scalings = scaling.of_runs(ctx, p.run_id, p.runs, p.target)
    return rounded(
        Scalings(scalings=scalings[:MOST], definitions={row.over: scaling.DEFINITIONS[row.over] for row in scalings})
    )


class EnergyParams(StoredParams):
    target: str | None = Field(default=None, max_length=200)


class Energies(Record):
    """Programs by joules per call, and whole runs by mean power."""

    programs: list[Reading]
    runs: list[RunEnergy]
    definition: str


@tool(cli="bench power", effect=READS, cost=MS, next=("aisp_measure_energy", "aisp_gpu_power"))
def aisp_analyze_energy(p: EnergyParams, ctx: Context) -> Energies:
    """Rank measured programs by joules per call, and runs by power."""
    from aisp_mcp.runs import stored
    from aisp_mcp.runs.energy import figures
    from aisp_mcp.server.text.numbers import rounded

    rows = [row for row in stored.readings(ctx) if p.target in (None, row.target)]
    whole = figures.of_runs(stored.maybe_runs(ctx, p.run_id, p.runs))
    if not rows and not whole:
        raise stored.no_energy()
    return rounded(Energies(programs=figures.ranked(rows)[:MOST], runs=whole[:3], definition=figures.DEFINITION))
