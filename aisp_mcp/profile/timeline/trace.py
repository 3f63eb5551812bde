"""Common form of all timelines, whatever their format."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from aisp_mcp.profile.records import Profile, ProfiledDevice, Source
from aisp_mcp.profile.timeline import sanity
from aisp_mcp.profile.timeline.columns import Calls, Ops
from aisp_mcp.profile.timeline.events import HostCall, HostRange, StreamWait
from aisp_mcp.profile.timeline.intervals import Cover


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
    faults: list[str] = field(default_factory=list)  # what the file itself has wrong, as sentences
    missing: int = 0  # launches without operations
    unsure: dict[int, Cover] = field(default_factory=dict)  # by device: times in which causes are unknown
    syncs: list[tuple[str, int]] = field(default_factory=list)  # (kind, duration)
    waits: list[StreamWait] = field(default_factory=list)
    rank: int | None = None
    ranks: int | None = None  # in the job, if the file contains it
    bounds: tuple[int, int] | None = None  # of the whole capture, if the file contains it
    summaries: dict[str, Profile] = field(default_factory=dict, init=False, compare=False)  # by scope

    @property
    def of_a_job(self) -> bool:
        """Return True for one rank of several: some of its kernels may communicate, whatever they are called."""
        if self.ranks is not None:
            return self.ranks > 1
        return self.rank is not None or any(fact.kind == "communication" for fact in self.gpu.facts)

    def of(self, source: Source) -> Trace:
        """The same events under another origin."""
        other = copy(self)
        other.source, other.summaries = source, {}
        return other

    @cached_property
    def ordered(self) -> Trace:
        """In order of time, without events that cannot be true, and operations joined with calls."""
        faults = list(self.faults)
        order, calls = self.gpu.order(), self.api.order()
        if order is not None and (lost := len(self.gpu) - len(order)):
            faults.append(f"{lost:,} of {len(self.gpu):,} device operations end before they start: left out.")
        gpu = self.gpu.take(slice(None) if order is None else order)
        api = self.api if calls is None else self.api.take(calls)
        gpu.join(api)
        checked = sanity.check(gpu, api, self.source.kind == "nsys")
        whole = replace(
            self,
            gpu=checked.gpu,
            api=api,
            operators=sanity.dated(self.operators, faults, "operators"),
            frames=sanity.dated(self.frames, faults, "frames"),
            ranges=sanity.dated([r for r in self.ranges if r.end >= r.start], faults, "ranges"),
            missing=checked.missing,
            unsure=checked.unsure,
        )
        whole.faults = [*faults, *checked.faults]
        whole.ordered = whole
        return whole
