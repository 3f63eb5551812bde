"""The scorecard: the probes an engineer runs first, in one call."""

from __future__ import annotations

from aisp_mcp.machine.probes import composite_probes
from aisp_mcp.machine.probes.probe_runner import Device
from aisp_mcp.machine.probes.records import Placed, Probe
from aisp_mcp.server.context import Context


def measure(ctx: Context, device: Device, types: list[str], timeout_s: float, peak: bool) -> list[tuple[str, Probe]]:
    """(kind, probe) per type. kind names the stored ceilings; peak: all dtypes and kinds."""
    share = timeout_s / len(types)
    quick = None if peak else (["bf16", "fp8", "fp32"] if device.is_gpu else ["fp32", "bf16"])
    kinds = ["copy", "read", "write", "triad"] if peak else ["copy", "triad"]
    parts = []
    for name in types:
        if name == "gemm":
            parts.append(("gemm", composite_probes.gemm(ctx, device, quick, None, share)))
        elif name == "memory":
            parts.append(("bandwidth", composite_probes.bandwidth(ctx, device, kinds, None, share)))
        elif name == "attention":
            parts.append(("attention", composite_probes.attention(ctx, device, share)))
        else:
            parts.append(("launch", composite_probes.launch(ctx, device, share)))
    return parts


def named(parts: list[tuple[str, Probe]]) -> list[Placed]:
    """All results under descriptive names."""
    return [item.model_copy(update={"name": f"{kind} {item.name}"}) for kind, part in parts for item in part.results]
