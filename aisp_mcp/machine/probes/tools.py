"""Measure the machine itself, and compare each figure with what it should reach."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.machine.probes.records import Collectives, Hierarchy, Placed, Probe, Roofline
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, Plan, tool

Dtype = Literal["bf16", "fp16", "tf32", "fp8", "int8", "fp32", "fp64"]
Part = Literal["gemm", "memory", "attention", "launch"]
CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
_SPEED_S, _TC_S, _ROOF_S, _CACHE_S, _LINK_S, _NCCL_S, _NET_S = 240.0, 180.0, 300.0, 240.0, 120.0, 300.0, 90.0


def _gpu_plan(timeout_s: float, gpus: int = 1) -> Plan:
    """Refuse before a job is created. Raises Unavailable NO_GPU, NEEDS_MULTI_GPU, TORCH_WITHOUT_CUDA."""
    from aisp_mcp.machine.probes import probe_runner

    probe_runner.require_gpu(gpus)
    return Plan(argv=[], timeout_s=timeout_s, resources=[])


class SpeedParams(JobParams):
    """Scope of the score card."""

    types: list[Part] = Field(default=["gemm", "memory", "attention", "launch"], min_length=1)
    preset: Literal["quick", "peak"] = Field(default="quick", description="peak: larger, and stored as ceilings.")


class ScoreCard(Record):
    """One row per rate, against the datasheet and the best seen on this device."""

    device: str
    device_id: str
    results: list[Placed]
    notes: list[str]
    kept: int = Field(default=0, description="Ceilings stored for later comparison.")
    seconds: float


def _score(p: SpeedParams, ctx: Context, keep: bool) -> ScoreCard:
    from aisp_mcp.machine.probes import device_probes, probe_runner

    device = probe_runner.choose()
    parts = device_probes.scorecard(ctx, device, list(p.types), p.timeout_s or _SPEED_S, peak=keep)
    stored = (
        sum(probe_runner.keep(ctx, device, kind, part.results, part.conditions) for kind, part in parts) if keep else 0
    )
    return ScoreCard(
        device=device.name,
        device_id=device.key,
        results=device_probes.named(parts),
        notes=list(dict.fromkeys(note for _, part in parts for note in part.notes)),
        kept=stored,
        seconds=round(sum(part.seconds for _, part in parts), 3),
    )


@tool(
    cli="hw speed",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_SPEED_S, measures=True),
    needs=("torch",),
    next=("aisp_hw_roofline", "aisp_triage"),
)
def aisp_hw_speed(p: SpeedParams, ctx: Context) -> ScoreCard:
    """Measure a score card in a minute: dense products, memory, attention, launch cost; GPU, else CPU."""
    return _score(p, ctx, keep=p.preset == "peak")


class PeakParams(JobParams):
    """No parameters: ceilings are comparable only if measured in the same way."""


@tool(
    cli="bench peak",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_SPEED_S, measures=True),
    needs=("torch",),
    next=("aisp_hw_roofline",),
)
def aisp_bench_peak(p: PeakParams, ctx: Context) -> ScoreCard:
    """Measure this device's ceilings and store them: other tools grade against them."""
    return _score(SpeedParams(types=["gemm", "memory"], preset="peak", timeout_s=p.timeout_s), ctx, keep=True)


class TcParams(JobParams):
    """Choice of products."""

    size: int | None = Field(default=None, ge=64, le=32_768, multiple_of=16, description="N of N x N x N.")
    dtypes: list[Dtype] | None = None


@tool(
    cli="hw tc",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_TC_S, measures=True),
    needs=("torch",),
    next=("aisp_hw_roofline", "aisp_gpu_power"),
)
def aisp_hw_tc(p: TcParams, ctx: Context) -> Probe:
    """Measure the dense matrix rate per dtype by the best library path, and its share of the datasheet's."""
    from aisp_mcp.machine.probes import device_probes, probe_runner

    dtypes: list[str] | None = [*p.dtypes] if p.dtypes else None
    return device_probes.gemm(ctx, probe_runner.choose(), dtypes, p.size, p.timeout_s or _TC_S)


class RooflineParams(JobParams):
    """Choice of ceilings."""

    dtypes: list[Dtype] | None = None
    png: bool = Field(default=False, description="The chart as PNG, too.")


@tool(
    cli="hw roofline",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_ROOF_S, measures=True),
    needs=("torch",),
    next=("aisp_hw_speed",),
    chart="roofline",
)
def aisp_hw_roofline(p: RooflineParams, ctx: Context) -> Roofline:
    """Measure ceilings and ridge points, place operations of known intensity, draw an SVG chart."""
    from aisp_mcp.machine.probes import device_probes, probe_runner

    dtypes: list[str] | None = [*p.dtypes] if p.dtypes else None
    return device_probes.roofline(ctx, probe_runner.choose(), dtypes, p.png, p.timeout_s or _ROOF_S)


class CacheParams(JobParams):
    """Range of sizes."""

    max_mb: int | None = Field(default=None, ge=1, le=8192, description="Largest working set.")


@tool(
    cli="hw cache",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_CACHE_S, measures=True),
    next=("aisp_hw_roofline", "aisp_system_full"),
)
def aisp_hw_cache(p: CacheParams, ctx: Context) -> Hierarchy:
    """Measure latency (random pointer chase) and bandwidth over working sets: caches and memory of GPU, else CPU."""
    from aisp_mcp.machine.probes import device_probes, probe_runner

    return device_probes.hierarchy(ctx, probe_runner.choose(), p.max_mb, p.timeout_s or _CACHE_S)


class LinkParams(JobParams):
    """Size of a copy."""

    size_mb: int = Field(default=256, ge=1, le=8192)


@tool(
    cli="hw pcie",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_LINK_S, measures=True),
    needs=("gpu", "torch"),
    next=("aisp_gpu_topology",),
    estimate=lambda p, _: _gpu_plan(p.timeout_s or _LINK_S),
)
def aisp_hw_pcie(p: LinkParams, ctx: Context) -> Probe:
    """Measure the host link: pinned, pageable, each way and both, against the trained PCIe generation and width."""
    from aisp_mcp.machine.probes import device_probes, probe_runner

    probe_runner.require_gpu()
    return device_probes.pcie(ctx, probe_runner.choose(), p.size_mb, p.timeout_s or _LINK_S)


@tool(
    cli="hw p2p",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_LINK_S, measures=True),
    needs=("multi_gpu", "torch"),
    next=("aisp_hw_nccl", "aisp_gpu_topology"),
    estimate=lambda p, _: _gpu_plan(p.timeout_s or _LINK_S, 2),
)
def aisp_hw_p2p(p: LinkParams, ctx: Context) -> Probe:
    """Measure pairwise GPU copies: each way, both, and latency, against the active NVLinks."""
    from aisp_mcp.machine.probes import device_probes, probe_runner

    probe_runner.require_gpu(2)
    return device_probes.p2p(p.size_mb, 28, p.timeout_s or _LINK_S)


class NcclParams(JobParams):
    """Choice of collectives and sizes."""

    collectives: list[CollectiveName] = Field(default=["all_reduce"], min_length=1)
    min_bytes: int = Field(default=1024, ge=4)
    max_bytes: int = Field(default=2**26, ge=4, le=2**33)
    gpus: int | None = Field(default=None, ge=2, le=64, description="Ranks; default: all GPUs, or 2 on CPUs.")


@tool(
    cli="hw nccl",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_NCCL_S, measures=True),
    needs=("torch",),
    next=("aisp_hw_p2p", "aisp_gpu_topology"),
)
def aisp_hw_nccl(p: NcclParams, ctx: Context) -> Collectives:
    """Measure collective bus bandwidth over sizes as nccl-tests defines it; NCCL on GPUs, gloo on CPUs."""
    from aisp_mcp.machine.probes import collectives

    if p.max_bytes < p.min_bytes:
        raise UsageError(
            "BAD_SIZES", f"max_bytes {p.max_bytes} is less than min_bytes {p.min_bytes}.", "Raise max_bytes."
        )
    return collectives.run(list(p.collectives), p.min_bytes, p.max_bytes, p.gpus, p.timeout_s or _NCCL_S)


class IbParams(JobParams):
    """Choice of the adapter."""

    device: str | None = Field(default=None, description="Such as mlx5_0; default: the first.")


def _plan_ib(p: IbParams, ctx: Context) -> Plan:
    from aisp_mcp.machine.probes import network

    network.check_rdma(p.device)
    return Plan(argv=[], timeout_s=p.timeout_s or _NET_S, resources=[])


@tool(
    cli="hw ib",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_NET_S, measures=True),
    next=("aisp_gpu_topology", "aisp_hw_network"),
    estimate=_plan_ib,
)
def aisp_hw_ib(p: IbParams, ctx: Context) -> Probe:
    """Measure the RDMA write bandwidth of an InfiniBand or RoCE adapter to itself, through perftest."""
    from aisp_mcp.machine.probes import network

    return network.rdma(p.device, p.timeout_s or _NET_S)


class NetworkParams(JobParams):
    """Target of the measurement."""

    mode: Literal["loopback", "host"] = "loopback"
    host: str | None = Field(default=None, description="Runs `iperf3 -s`; needed for mode host.")
    seconds: float = Field(default=4.0, ge=1, le=60)


@tool(
    cli="hw network",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_NET_S, measures=True),
    needs=("network",),
    next=("aisp_gpu_topology",),
)
def aisp_hw_network(p: NetworkParams, ctx: Context) -> Probe:
    """Measure the TCP rate: iperf3, else a plain socket stream; loopback unless a host is given."""
    from aisp_mcp.machine.probes import network

    return network.tcp(p.host if p.mode == "host" else None, p.mode, p.seconds, p.timeout_s or _NET_S)


class DiskParams(JobParams):
    """Folder and amount of data."""

    dir: str | None = Field(default=None, description="Folder to test; default: the artifact root.")
    size_mb: int = Field(default=256, ge=1, le=65_536)
    block_kb: int = Field(default=1024, ge=4, le=65_536, multiple_of=4)
    engine: Literal["auto", "fio", "builtin"] = "auto"


def _writable(folder: str | None, ctx: Context) -> Path:
    """The folder to write to. Raises Refused OUTSIDE_ROOTS unless it is the artifact root or was allowed."""
    from aisp_mcp.server import files
    from aisp_mcp.store.private import make_private

    home = ctx.settings.home.absolute()
    make_private(home)
    if folder is None:
        return home
    return files.require_inside(Path(folder), (home, *ctx.allow_write), "Open it with --allow-write, or leave dir out.")


@tool(
    cli="hw disk",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=180, measures=True),
    next=("aisp_triage", "aisp_system_dependencies"),
)
def aisp_hw_disk(p: DiskParams, ctx: Context) -> Probe:
    """Measure sequential disk rates at queue depth 1, cached and uncached; fio, else O_DIRECT."""
    from aisp_mcp.machine.probes.disk import probe

    return probe(
        _writable(p.dir, ctx),
        p.size_mb * 2**20,
        p.block_kb * 1024,
        p.engine,
        budget_s=0.8 * (p.timeout_s or 180),
        progress=lambda share, message: ctx.progress(share, 1.0, message),
    )
