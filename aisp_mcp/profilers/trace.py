"""Common form of all timelines, whatever their format."""

from __future__ import annotations

from dataclasses import dataclass, field

from aisp_mcp.model.profile import ProfiledDevice, Source
from aisp_mcp.profilers.columns import Calls, Ops
from aisp_mcp.profilers.events import HostCall, HostRange, StreamWait


@dataclass
class Trace:
    """Events are in file order; `api` are CUDA calls, `operators` host operators, `stacks` Python frames."""

    source: Source
    gpu: Ops = field(default_factory=Ops)
    api: Calls = field(default_factory=Calls)
    operators: list[HostCall] = field(default_factory=list)
    frames: list[HostCall] = field(default_factory=list)
    ranges: list[HostRange] = field(default_factory=list)
    devices: list[ProfiledDevice] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)
    syncs: list[tuple[str, int]] = field(default_factory=list)  # (kind, duration)
    waits: list[StreamWait] = field(default_factory=list)
    rank: int | None = None
    bounds: tuple[int, int] | None = None  # of the whole capture, where the file says
    ordered: Trace | None = field(default=None, init=False, repr=False, compare=False)  # made once: see timeline
