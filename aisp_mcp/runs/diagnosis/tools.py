"""Analysis of profiles and models: bottlenecks, memory access, communication overlap, data loading,
predicted scaling.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.plan.records import Billions, Gpus, Positive, Size
from aisp_mcp.plan.training.scaling import ScalingQuestion, ScalingRow
from aisp_mcp.profile.digest import Found
from aisp_mcp.profile.records import Source
from aisp_mcp.profile.timeline.exposure import RankOverlap
from aisp_mcp.records import Params, Record
from aisp_mcp.runs.diagnosis.bottleneck import Bottleneck
from aisp_mcp.runs.diagnosis.knee import Knee, Setting
from aisp_mcp.runs.diagnosis.memory_patterns import Kernel, Pattern
from aisp_mcp.runs.diagnosis.stragglers import Stragglers
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, MS, READS, RUNS, JobParams, JobSpec, Plan, ReadingParams, S, tool

Path_ = Annotated[str, Field(min_length=1, max_length=4096)]
MOST = 8  # rows of an answer
PASSES = 3  # passes over the data, per setting of a loader


class BottleneckParams(ReadingParams):
    profile: Path_ | None = Field(default=None, description="Trace, or raw CSV page of ncu.")
    run_id: str | None = Field(default=None, max_length=200, description="Default: newest.")


class Bottlenecks(Record):
    """One entry per trace, ncu report or program of a run. insights: named problems with their ceilings."""

    source: Source | None = None
    run: str | None = None
    found: list[Bottleneck]
    insights: list[Found] = Field(default_factory=list)
    definition: str


@tool(cli="profile bottleneck", effect=READS, cost=S, next=("aisp_profile_kernels", "aisp_ncu_summary"))
def aisp_analyze_bottlenecks(p: BottleneckParams, ctx: Context) -> Bottlenecks:
    """Say what bounds a profile or run: compute, memory, latency, communication, host or input."""
    from aisp_mcp.runs.diagnosis import bottlenecks

    if p.profile is not None and p.run_id is not None:
        raise UsageError("NO_PROFILE", "Give a profile or a run, not both.", "profile: 'trace.json', or run_id: 'j_…'.")
    if p.profile is not None:
        source, rows, insights, definition = bottlenecks.of_profile(p.profile)
        return Bottlenecks(source=source, found=rows, insights=insights[:MOST], definition=definition)
    run_id, rows, definition = bottlenecks.of_run(ctx, p.run_id)
    return Bottlenecks(run=run_id, found=rows[:MOST], definition=definition)


class PatternParams(ReadingParams):
    profile: Path_ | None = Field(default=None, description="Raw CSV page of ncu.")
    stride: int | None = Field(default=None, ge=0, description="Instead: elements between threads.")
    element_bytes: Literal[1, 2, 4, 8, 16] = 4
    offset: int = Field(default=0, ge=0)
    space: Literal["global", "shared"] = "global"


class Patterns(Record):
    """Launches of a report by time, or one access pattern."""

    source: Source | None = None
    kernels: list[Kernel] = Field(default_factory=list)
    pattern: Pattern | None = None
    definition: str


@tool(cli="profile memory-patterns", effect=READS, cost=S, next=("aisp_ncu_summary", "aisp_hw_cache"))
def aisp_analyze_memory_patterns(p: PatternParams, ctx: Context) -> Patterns:
    """Judge coalescing, bank conflicts and divergence of an ncu report, or of a stride."""
    from aisp_mcp.runs.diagnosis import bottlenecks, memory_patterns

    if (p.profile is None) == (p.stride is None):
        usage = "aisp profile memory-patterns --stride 32, or --profile report.raw.csv"
        raise UsageError(
            "NO_PROFILE",
            "Give a report or a stride.",
            usage,
            [("aisp_profile_ncu", {"target": "ch07:row_sum", "set": "full"})],
        )
    if p.stride is not None:
        of = memory_patterns.of_global if p.space == "global" else memory_patterns.of_shared
        return Patterns(pattern=of(p.element_bytes, p.stride, p.offset), definition=memory_patterns.DEFINITIONS)
    source, rows = bottlenecks.memory_patterns(p.profile or "")
    return Patterns(source=source, kernels=rows[:MOST], definition=memory_patterns.DEFINITIONS)


class OverlapParams(ReadingParams):
    traces: list[Path_] = Field(min_length=1, max_length=16, description="Kineto or nsys SQLite, one per rank.")
    window: Literal["all", "steady"] = "all"


class Overlap(Record):
    """All ranks, and the one that the others wait for."""

    ranks: list[RankOverlap]
    stragglers: Stragglers | None = Field(description="None with one rank, or without calls that all ranks made.")
    notes: list[str]
    definition: str


@tool(cli="profile comm-overlap", effect=READS, cost=S, next=("aisp_profile_hta", "aisp_hw_nccl"))
def aisp_analyze_comm_overlap(p: OverlapParams, ctx: Context) -> Overlap:
    """Find exposed communication per collective, bus bandwidth, same-stream calls and late ranks."""
    from aisp_mcp.profile.timeline import exposure
    from aisp_mcp.runs.diagnosis import communication, stragglers
    from aisp_mcp.server.text.numbers import rounded

    ranks = communication.ranks(p.traces, p.window)
    late = stragglers.stragglers([(row.rank, calls) for row, calls in ranks])
    rows = [row for row, _ in ranks]
    shown = [row.model_copy(update={"collectives": row.collectives[:MOST]}) for row in rows]
    definition = f"{exposure.DEFINITION} {stragglers.DEFINITION}"
    return rounded(Overlap(ranks=shown, stragglers=late, notes=communication.notes(rows), definition=definition))


class LoaderParams(JobParams):
    factory: str = Field(max_length=4096, description="FILE.py:NAME, returns a map-style dataset.")
    batch: int = Field(default=32, ge=1)
    workers: list[int] = Field(default_factory=list, max_length=12, description="Default: 0, 1, 2, 4 … CPUs.")
    prefetch: list[int] = Field(default=[2], min_length=1, max_length=4)
    pinning: bool = False
    batches: int = Field(default=50, ge=2)


class Loading(Record):
    """Every setting of the sweep, and the knee."""

    knee: Knee
    settings: list[Setting]
    cpus: int
    notes: list[str]
    definition: str


def _plan_loading(p: LoaderParams, ctx: Context) -> Plan:
    from aisp_mcp.runs.diagnosis import loading

    argv, sweep = loading.plan(p.factory, p.workers, p.prefetch, p.pinning)
    return Plan(argv=argv, timeout_s=p.timeout_s or 600, resources=["cpu"], details={"settings": len(sweep)})


@tool(
    cli="profile dataloader", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=600, measures=True), needs=("torch",),
    next=("aisp_hw_disk", "aisp_profile_torch"), estimate=_plan_loading,
)  # fmt: skip
def aisp_analyze_dataloader(p: LoaderParams, ctx: Context) -> Loading:
    """Measure a data loader over workers, prefetch and pinning, and find the knee."""
    from aisp_mcp.runs.diagnosis import knee, loading
    from aisp_mcp.server.text.numbers import rounded

    _, sweep = loading.plan(p.factory, p.workers, p.prefetch, p.pinning)
    settings, cpus, notes = loading.measure(p.factory, sweep, (p.batch, p.batches, PASSES), (p.timeout_s or 600) * 0.9)
    chosen = knee.knee(settings)
    return rounded(Loading(knee=chosen, settings=settings, cpus=cpus, notes=notes, definition=knee.DEFINITION))


class LayoutParams(Params):
    model: str | None = None
    params_b: Billions | None = None
    layers: Size | None = None
    hidden: Size | None = None
    batch: Size
    seq: Size = 4096
    tensor: Size = 1
    pipeline: Size = 1
    micro_batch: Size = 1
    virtual_stages: Size = 1
    recompute: bool = False


class PredictParams(LayoutParams):
    gpus: Gpus
    gpu: str
    dtype: Literal["bf16", "fp16", "fp8"] = "bf16"
    gpus_per_node: Gpus = 8
    network_gb_s: Positive | None = None
    step_s: Positive | None = None
    weak: bool = False


class Scaled(Record):
    """Step time of the largest GPU count, and a row per count down to one replica."""

    rows: list[ScalingRow]
    band: dict[str, float] = Field(description="Step time in seconds at the given GPU count.")
    assumptions: list[str]
    not_modelled: list[str]
    definitions: dict[str, str]
    check_here: str
    sources: list[str]


def _question(p: PredictParams) -> ScalingQuestion:
    """The question to the planner. Raises UsageError NO_MODEL, TWO_SHAPES, BAD_ARCHITECTURE."""
    from aisp_mcp.plan import lookup
    from aisp_mcp.plan.training import scaling
    from aisp_mcp.plan.training.layout import Layout

    sizes = (p.params_b, p.layers, p.hidden)
    if p.model is not None and any(size is not None for size in sizes):
        raise UsageError("TWO_SHAPES", "A model has its own numbers.", "Give model, or the numbers, not both.")
    if p.model is not None or p.params_b is None or p.layers is None or p.hidden is None:
        arch = lookup.architecture(p.model)
    else:
        arch = scaling.described(p.params_b, p.layers, p.hidden)
    layout = Layout(
        tensor=p.tensor,
        pipeline=p.pipeline,
        virtual=p.virtual_stages,
        microbatch=p.micro_batch,
        recompute="full" if p.recompute else "none",
    )
    return scaling.ScalingQuestion(
        arch, layout, p.gpus, p.batch, p.seq, p.gpu, p.dtype, p.network_gb_s, p.gpus_per_node,
        p.step_s, p.weak,
    )  # fmt: skip


@tool(cli="predict scaling", effect=READS, cost=MS, next=("aisp_hw_nccl", "aisp_analyze_scaling"))
def aisp_predict_scaling(p: PredictParams, ctx: Context) -> Scaled:
    """Predict a training step over GPU counts: compute, exposed communication, bubble, with band."""
    from aisp_mcp.plan.training import scaling
    from aisp_mcp.server.text.numbers import rounded

    prediction = scaling.predict(_question(p))
    last = prediction.rows[-1]
    return rounded(
        Scaled(
            rows=prediction.rows,
            band={"p10_s": last.p10_s, "p50_s": last.p50_s, "p90_s": last.p90_s},
            assumptions=prediction.assumptions,
            not_modelled=scaling.NOT_MODELLED,
            definitions=scaling.DEFINITIONS,
            check_here="aisp hw nccl; aisp hw tc; then step_s of one real step",
            sources=[f"{source.what}, {source.as_of}" for source in prediction.sources],
        )
    )
