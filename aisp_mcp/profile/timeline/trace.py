"""Common form of all timelines, whatever their format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from aisp_mcp.profile.records import ProfiledDevice, Source
from aisp_mcp.profile.timeline.columns import Calls, Ops
from aisp_mcp.profile.timeline.events import HostCall, HostRange, StreamWait


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
    ranks: int | None = None  # in the job, if the file contains it
    bounds: tuple[int, int] | None = None  # of the whole capture, if the file contains it

    @property
    def of_a_job(self) -> bool:
        """Return True for one rank of several: some of its kernels may communicate, whatever they are called."""
        if self.ranks is not None:
            return self.ranks > 1
        return self.rank is not None or any(fact.kind == "communication" for fact in self.gpu.facts)

    @cached_property
    def ordered(self) -> Trace:
        """In order of time, without events that end before they start, and operations joined with calls."""
        order, calls = self.gpu.order(), self.api.order()
        if order is not None and (lost := len(self.gpu) - len(order)):
            self.diagnostics.append(f"Reader: {lost} device operations end before they start and were left out.")
        gpu = self.gpu.take(slice(None) if order is None else order)
        api = self.api if calls is None else self.api.take(calls)
        gpu.join(api)
        return replace(self, gpu=gpu, api=api, ranges=[r for r in self.ranges if r.end >= r.start])
