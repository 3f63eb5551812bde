"""Project named host ranges onto the device: which GPU work was launched inside each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from aisp_mcp.model.profile import RangeStat
from aisp_mcp.profilers.trace import GpuOp, HostCall, Trace

_MAX_VISITS = 20_000_000  # range and call pairs looked at; deeper nesting than this is left out, and said

Launch = tuple[int, int, tuple[int, int]]  # start, end, link of a call that launched something


def launched_by(trace: Trace) -> dict[tuple[int, int], list[GpuOp]]:
    """GPU operations by the call that launched them."""
    found: dict[tuple[int, int], list[GpuOp]] = defaultdict(list)
    for op in trace.gpu:
        if op.link[1]:
            found[op.link].append(op)
    return found


def launch_calls(api: Sequence[HostCall], ops: dict[tuple[int, int], list[GpuOp]]) -> dict[int, list[Launch]]:
    """Per thread, in order of start: the calls whose correlation id belongs to GPU work."""
    found: dict[int, list[Launch]] = defaultdict(list)
    for call in api:
        if call.link in ops:
            found[call.thread].append((call.start, call.end, call.link))
    for calls in found.values():
        calls.sort()
    return found


def project(trace: Trace, ops: dict[tuple[int, int], list[GpuOp]]) -> list[RangeStat]:
    """One row per name, ordered by projected time. A call counts if it lies wholly inside, on the same thread."""
    calls = launch_calls(trace.api, ops)
    starts = {thread: [c[0] for c in rows] for thread, rows in calls.items()}
    groups: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    visits = 0
    for one in trace.ranges:
        rows = calls.get(one.thread, [])
        low = bisect_left(starts.get(one.thread, []), one.start)
        high = bisect_right(starts.get(one.thread, []), one.end)
        visits += high - low
        if visits > _MAX_VISITS:
            trace.diagnostics.append("Reader: ranges nest too deeply; what lies beyond 20 million pairs is left out.")
            break
        inside = {link for _, end, link in rows[low:high] if end <= one.end}
        work = [op for link in inside for op in ops[link]]
        projected = max((op.end for op in work), default=0) - min((op.start for op in work), default=0)
        groups[one.name].append((one.end - one.start, len(inside), projected, sum(op.end - op.start for op in work)))
    rows_out = [_row(name, found) for name, found in groups.items()]
    return sorted(rows_out, key=lambda r: (-r.projected_ns, -r.total_ns, r.name))


def _row(name: str, found: list[tuple[int, int, int, int]]) -> RangeStat:
    times = [f[0] for f in found]
    return RangeStat(
        name=name,
        count=len(found),
        total_ns=sum(times),
        median_ns=median(times),
        min_ns=min(times),
        max_ns=max(times),
        operations=sum(f[1] for f in found),
        projected_ns=sum(f[2] for f in found),
        gpu_ns=sum(f[3] for f in found),
    )
