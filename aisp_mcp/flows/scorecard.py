"""The score card: the probes an engineer runs first, in one go."""

from __future__ import annotations

from aisp_mcp.context import Context
from aisp_mcp.flows import hardware_more
from aisp_mcp.flows.hardware import Device
from aisp_mcp.model.probe import Placed, Probe


def measure(ctx: Context, device: Device, types: list[str], timeout_s: float, peak: bool) -> list[tuple[str, Probe]]:
    """(kind, probe) per type. kind names the stored ceilings; peak: all dtypes and kinds."""
    share = timeout_s / len(types)
    quick = None if peak else (["bf16", "fp8", "fp32"] if device.is_gpu else ["fp32", "bf16"])
    kinds = ["copy", "read", "write", "triad"] if peak else ["copy", "triad"]
    found = []
    for name in types:
        if name == "gemm":
            found.append(("gemm", hardware_more.gemm(ctx, device, quick, None, share)))
        elif name == "memory":
            found.append(("bandwidth", hardware_more.bandwidth(ctx, device, kinds, None, share)))
        elif name == "attention":
            found.append(("attention", hardware_more.attention(ctx, device, share)))
        else:
            found.append(("launch", hardware_more.launch(ctx, device, share)))
    return found


def named(parts: list[tuple[str, Probe]]) -> list[Placed]:
    """All results under names that say what they are."""
    return [item.model_copy(update={"name": f"{kind} {item.name}"}) for kind, part in parts for item in part.results]
