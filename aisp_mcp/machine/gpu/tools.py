"""The GPUs as the driver sees them, and how they are connected."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.errors import Unavailable
from aisp_mcp.machine.probes.records import Probe
from aisp_mcp.machine.tools import NoParams
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, READS, RUNS, JobParams, JobSpec, Plan, S, tool
from aisp_mcp.system.records import GpuPower, GpuReading, GpuThermal, Problem, Topology


def require_gpus(reading: GpuReading) -> GpuReading:
    """The reading, if it has a GPU. Raises Unavailable: NO_GPU, or the driver's problem."""
    if reading.gpus:
        return reading
    problem = reading.problem
    code = problem.code if problem and problem.code not in ("NO_DRIVER", "NO_DEVICES") else "NO_GPU"
    message = problem.message if problem else "NVML shows no device."
    raise Unavailable(
        code,
        f"No usable NVIDIA GPU. {message} Looked for: libnvidia-ml.so.1, /proc/driver/nvidia, NVIDIA cards on PCI.",
        problem.hint if problem and problem.hint else "The CPU variants of the hardware probes work without one.",
        (("aisp_triage", {}), ("aisp_system_dependencies", {})),
    )


@tool(cli="gpu info", effect=READS, cost=S, needs=("gpu",), next=("aisp_gpu_power", "aisp_triage"), listed="default")
def aisp_gpu_info(p: NoParams, ctx: Context) -> GpuReading:
    """Report every GPU: memory, clocks, temperature, power, use, ECC, MIG, processes, throttling."""
    from aisp_mcp.system.gpu import nvml

    return require_gpus(nvml.read())


class PowerState(Record):
    """Power and heat of one GPU, with the decoded reasons for its clocks."""

    index: int
    name: str | None
    power: GpuPower
    thermal: GpuThermal
    sm_mhz: int | None
    sm_max_mhz: int | None
    event_reasons: list[str] | None = Field(description="None where the driver does not say; [] is full speed.")
    limited: bool | None = Field(description="A reason other than idle holds the clocks down now.")


class PowerReading(Record):
    """All GPUs."""

    gpus: list[PowerState]
    problem: Problem | None = None


@tool(cli="gpu power", effect=READS, cost=S, needs=("gpu",), next=("aisp_gpu_info",))
def aisp_gpu_power(p: NoParams, ctx: Context) -> PowerReading:
    """Report power draw, limits, temperatures, decoded throttle reasons and the energy counter of each GPU."""
    from aisp_mcp.system.gpu import nvml

    reading = require_gpus(nvml.read())
    states = [
        PowerState(
            index=g.index,
            name=g.name,
            power=g.power,
            thermal=g.thermal,
            sm_mhz=g.clocks.sm_mhz,
            sm_max_mhz=g.clocks.sm_max_mhz,
            event_reasons=g.clocks.event_reasons,
            limited=None if g.clocks.event_reasons is None else bool(set(g.clocks.event_reasons) - {"gpu_idle"}),
        )
        for g in reading.gpus
    ]
    return PowerReading(gpus=states, problem=reading.problem)


@tool(cli="gpu topology", effect=READS, cost=S, next=("aisp_gpu_topology_matrix",))
def aisp_gpu_topology(p: NoParams, ctx: Context) -> Topology:
    """Report GPU links (NVLink, PCIe, peer access), NUMA nodes, adapters and nearest GPUs, or the host."""
    from aisp_mcp.system import topology

    return topology.read()


class TopologyMatrix(Record):
    """`nvidia-smi topo -m`, parsed and raw."""

    matrix: dict[str, dict[str, str]] = Field(description="Row device to column to link.")
    legend: dict[str, str]
    raw: str


@tool(cli="gpu topology-matrix", effect=READS, cost=S, needs=("gpu",), next=("aisp_gpu_topology",))
def aisp_gpu_topology_matrix(p: NoParams, ctx: Context) -> TopologyMatrix:
    """Show the matrix of `nvidia-smi topo -m`, parsed and raw."""
    from aisp_mcp.system.gpu import smi

    raw, problem = smi.topology()
    if problem is not None:
        nexts: tuple[tuple[str, dict[str, Any]], ...] = (("aisp_gpu_topology", {}), ("aisp_system_dependencies", {}))
        raise Unavailable(problem.code, problem.message, problem.hint, nexts)
    matrix, legend = smi.parse_topology(raw)
    return TopologyMatrix(matrix=matrix, legend=legend, raw=raw)


class BandwidthParams(JobParams):
    """Kind and amount of data to move."""

    size_mb: int | None = Field(default=None, ge=1, le=16_384, description="Of each array; default 1024.")
    kinds: list[Literal["copy", "read", "write", "triad"]] = Field(default=["copy", "read", "write"], min_length=1)
    cpu: bool = Field(default=False, description="Measure host memory instead.")


def _plan_bandwidth(p: BandwidthParams, ctx: Context) -> Plan:
    from aisp_mcp.machine.probes import probe_runner

    if not p.cpu:
        probe_runner.require_gpu()
    return Plan(argv=[], timeout_s=p.timeout_s or _BANDWIDTH_S, resources=["cpu"] if p.cpu else [])


_BANDWIDTH_S = 120.0


@tool(
    cli="gpu bandwidth",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=_BANDWIDTH_S, measures=True),
    needs=("torch",),
    next=("aisp_hw_cache", "aisp_hw_roofline"),
    estimate=_plan_bandwidth,
)
def aisp_gpu_bandwidth(p: BandwidthParams, ctx: Context) -> Probe:
    """Measure device memory bandwidth: interval, share of the datasheet and of this card's best."""
    from aisp_mcp.machine.probes import device_probes, probe_runner

    if not p.cpu:
        probe_runner.require_gpu()
    device = probe_runner.host() if p.cpu else probe_runner.choose()
    return device_probes.bandwidth(ctx, device, list(p.kinds), p.size_mb, p.timeout_s or _BANDWIDTH_S)
