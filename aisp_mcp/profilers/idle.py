"""Why a device did nothing: every gap between operations, by what it waited for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from aisp_mcp.model.profile import Gap, HostShare
from aisp_mcp.profilers.host import blocking, call_kind, range_kind
from aisp_mcp.profilers.intervals import Interval, intersect, length, subtract, union
from aisp_mcp.profilers.trace import GpuOp, HostCall, Trace

KERNEL_GAP_NS = 10_000  # up to here, a gap before work that was already launched is the device's own turn-around
_SHOWN = 50
Cause = Literal["host", "kernel", "other"]


class Wait(NamedTuple):
    """One gap with the operation that ended it and the call that launched that."""

    start: int
    end: int
    cause: Cause
    ended_by: GpuOp
    launch: HostCall | None


def waits(ops: Sequence[GpuOp], busy: Sequence[Interval], launches: dict[tuple[int, int], HostCall]) -> list[Wait]:
    """Gaps between the intervals of one device's busy time. ops: of that device, ordered by start."""
    starts = [op.start for op in ops]
    found = []
    for (_, left), (right, _) in pairwise(busy):
        op = ops[min(bisect_left(starts, right), len(ops) - 1)]
        launch = launches.get(op.link)
        found.append(Wait(left, right, _cause(left, right, launch), op, launch))
    return found


def _cause(start: int, end: int, launch: HostCall | None) -> Cause:
    if launch is not None and launch.start >= start:
        return "host"
    return "kernel" if end - start <= KERNEL_GAP_NS and launch is not None else "other"


def longest(found: Sequence[Wait], api: Sequence[HostCall]) -> list[Gap]:
    """The longest gaps of all devices, with what the launching thread did in them."""
    by_thread: dict[int, list[HostCall]] = defaultdict(list)
    for call in sorted(api):
        by_thread[call.thread].append(call)
    starts = {thread: [c.start for c in calls] for thread, calls in by_thread.items()}
    rows = []
    for wait in sorted(found, key=lambda w: (w.start - w.end, w.start))[:_SHOWN]:
        host = None
        if wait.launch is not None:
            calls = by_thread[wait.launch.thread]
            low = bisect_left(starts[wait.launch.thread], wait.start)
            high = bisect_right(starts[wait.launch.thread], wait.end)
            host = _main_call(calls[max(low - 1, 0) : high], wait)
        rows.append(
            Gap(
                device=wait.ended_by.device,
                start_ns=wait.start,
                duration_ns=wait.end - wait.start,
                cause=wait.cause,
                before=wait.ended_by.name,
                host=host,
            )
        )
    return rows


def _main_call(calls: Sequence[HostCall], wait: Wait) -> str:
    """The call with most time inside the gap; "host code" if no call fills as much as all the rest."""
    spent: dict[str, int] = defaultdict(int)
    for call in calls:
        spent[call.name] += max(0, min(call.end, wait.end) - max(call.start, wait.start))
    name, most = max(spent.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return name if most * 2 > wait.end - wait.start else "host code"


_ORDER = ("input", "compile", "load code", "allocate", "synchronize", "copy", "launch", "other CUDA call")


def host_shares(trace: Trace, found: Sequence[Wait]) -> list[HostShare]:
    """The gaps that the host caused, divided by what it did: each nanosecond is counted once, first match wins.

    synchronize: the whole rest of a gap that began while the launching thread was blocked in a call, since nothing
    could be queued ahead.
    """
    mine = [w for w in found if w.cause == "host"]
    left = union((w.start, w.end) for w in mine)
    groups: dict[str, list[Interval]] = defaultdict(list)
    for call in trace.api:
        groups[call_kind(call.name)].append((call.start, call.end))
    for name, start, end in _named(trace):
        if kind := range_kind(name):
            groups[kind].append((start, end))
    groups["synchronize"] += _after_blocking(trace.api, mine)
    rows = []
    for kind in _ORDER:
        covered = union(groups.get(kind, []))
        if spent := length(intersect(left, covered)):
            rows.append(HostShare(activity=kind, ns=spent))
        left = subtract(left, covered)
    if rest := length(left):
        rows.append(HostShare(activity="host code outside CUDA", ns=rest))
    return sorted(rows, key=lambda r: -r.ns)


def _after_blocking(api: Sequence[HostCall], found: Sequence[Wait]) -> list[Interval]:
    """Gaps at whose start the launching thread was inside a call that waits for the device."""
    by_thread: dict[int, list[Interval]] = defaultdict(list)
    for call in api:
        if blocking(call.name):
            by_thread[call.thread].append((call.start, call.end))
    for calls in by_thread.values():
        calls.sort()
    gaps = []
    for wait in found:
        calls = by_thread.get(wait.launch.thread, []) if wait.launch else []
        at = bisect_right(calls, (wait.start, wait.start + 2**62)) - 1
        if at >= 0 and calls[at][1] >= wait.start:
            gaps.append((wait.start, wait.end))
    return gaps


def _named(trace: Trace) -> list[tuple[str, int, int]]:
    return [(r.name, r.start, r.end) for r in trace.ranges] + [(c.name, c.start, c.end) for c in trace.operators]
