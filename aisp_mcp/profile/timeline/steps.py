"""Iterations among the ranges of a trace, and the time of each."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from aisp_mcp.profile.records import Step
from aisp_mcp.profile.timeline.events import HostRange
from aisp_mcp.profile.timeline.intervals import Cover, Interval
from aisp_mcp.profile.timeline.trace import Trace

_STEP = re.compile(r"(?:^|[\s:_/.])(?:profiler|train(?:ing)?_?)?(?:step|iter(?:ation)?|batch)[\s_#:=-]*(\d+)?$", re.I)
# A range of the optimizer is also called step but is not an iteration.
_NOT_STEP = re.compile(r"optim", re.I)
_MAX_STEPS = 50_000


def is_step(name: str) -> bool:
    """Return True if a range of this name looks like an iteration."""
    if name.startswith("ProfilerStep#"):
        return True
    return len(name) < 100 and bool(_STEP.search(name)) and not _NOT_STEP.search(name)


def find(ranges: Sequence[HostRange]) -> list[HostRange]:
    """The iterations, in time order: `ProfilerStep#n` if there are any, else outermost ranges named like steps."""
    named = [r for r in ranges if r.name.startswith("ProfilerStep#")]
    if not named:
        named = [r for r in ranges if is_step(r.name)]
    outer: list[HostRange] = []
    by_thread: dict[int, list[HostRange]] = defaultdict(list)
    for host_range in named:
        by_thread[host_range.thread].append(host_range)
    # One thread drives the loop: the one with most steps.
    busiest = max(by_thread.values(), key=lambda rows: len(rows), default=[])
    for host_range in sorted(busiest, key=lambda r: (r.start, -r.end)):
        if not outer or host_range.start >= outer[-1].end:
            outer.append(host_range)
    return outer[:_MAX_STEPS]


def measure(host_ranges: Sequence[HostRange], trace: Trace, busy: Cover) -> list[Step]:
    """Each iteration by the device: from the end of the work launched by the previous one to the end of its own.

    If an iteration launched nothing, all are measured by the host, from start to end. busy: union of all operations.
    """
    if not trace.gpu:
        return [Step(name=r.name, start_ns=r.start, duration_ns=r.end - r.start) for r in host_ranges]
    spans = _device_spans(host_ranges, trace) or [(host_range.start, host_range.end) for host_range in host_ranges]
    rows = []
    for host_range, (start, end) in zip(host_ranges, spans, strict=True):
        inside = busy.inside(start, end)
        row = Step(
            name=host_range.name, start_ns=start, duration_ns=end - start, busy_ns=inside, idle_ns=end - start - inside
        )
        rows.append(row)
    return rows


def _device_spans(host_ranges: Sequence[HostRange], trace: Trace) -> list[Interval] | None:
    rows = trace.gpu.launches
    assert rows is not None
    first, ends = [], []
    for host_range in host_ranges:
        launched = slice(bisect_left(rows.start, host_range.start), bisect_left(rows.start, host_range.end))
        if not rows.first[launched]:
            return None
        first.append(min(rows.first[launched]))
        ends.append(max(rows.last[launched]))
    if not host_ranges:
        return None
    # A pause between two loops is not part of an iteration, which then begins with its own first operation.
    spans = [(first[0], ends[0])]
    for at in range(1, len(host_ranges)):
        paused = host_ranges[at].start - host_ranges[at - 1].end > host_ranges[at].end - host_ranges[at].start
        spans.append((first[at] if paused or ends[at - 1] > ends[at] else ends[at - 1], ends[at]))
    return spans
