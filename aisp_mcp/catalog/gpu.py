"""The GPUs as the driver sees them."""

from __future__ import annotations

from aisp_mcp.catalog.machine import NoParams
from aisp_mcp.context import Context
from aisp_mcp.errors import Unavailable
from aisp_mcp.model.device import GpuReading
from aisp_mcp.registry import READS, S, tool


def require_gpus(reading: GpuReading) -> GpuReading:
    """The reading, if it has a GPU. Raises Unavailable: NO_GPU, or the driver's problem."""
    if reading.gpus:
        return reading
    problem = reading.problem
    code = problem.code if problem and problem.code not in ("NO_DRIVER", "NO_DEVICES") else "NO_GPU"
    said = problem.message if problem else "NVML shows no device."
    raise Unavailable(
        code,
        f"No usable NVIDIA GPU. {said} Looked for: libnvidia-ml.so.1, /proc/driver/nvidia, NVIDIA cards on PCI.",
        problem.hint if problem and problem.hint else "The CPU variants of the hardware probes work without one.",
        (("aisp_triage", {}), ("aisp_system_dependencies", {})),
    )


@tool(cli="gpu info", effect=READS, cost=S, needs=("gpu",), next=("aisp_triage",))
def aisp_gpu_info(p: NoParams, ctx: Context) -> GpuReading:
    """All GPUs: memory, clocks, temperature, power, use, ECC, MIG, processes, and why clocks are not higher."""
    from aisp_mcp.system import nvml

    return require_gpus(nvml.read())
