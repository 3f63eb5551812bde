"""Project named host ranges onto the device: which GPU work was launched inside each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from aisp_mcp.profile.records import RangeStat
from aisp_mcp.profile.timeline.columns import Calls, Launches
from aisp_mcp.profile.timeline.events import GpuOp
from aisp_mcp.profile.timeline.trace import Trace

_MAX_VISITS = 20_000_000  # pairs of range and call to examine; deeper nesting is left out and reported

Launch = tuple[int, int, tuple[int, int]]  # start, end, link of a call that launched something


def launched_by(trace: Trace) -> dict[tuple[int, int], list[GpuOp]]:
    """GPU operations by the call that launched them."""
    gpu_ops: dict[tuple[int, int], list[GpuOp]] = defaultdict(list)
    for op in trace.gpu:
        if op.link[1]:
            gpu_ops[op.link].append(op)
    return gpu_ops


def launch_calls(api: Calls, ops: dict[tuple[int, int], list[GpuOp]]) -> dict[int, list[Launch]]:
    """Per thread, in order of start: the calls whose correlation id belongs to GPU work."""
    launches: dict[int, list[Launch]] = defaultdict(list)
    for call in api:
        if call.link in ops:
            launches[call.thread].append((call.start, call.end, call.link))
    for calls in launches.values():
        calls.sort()
    return launches


def project(trace: Trace) -> list[RangeStat]:
    """One row per name, ordered by projected time. A call counts if it is wholly inside, on the same thread."""
    calls = _by_thread(trace)
    groups: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    visits = 0
    for host_range in trace.ranges:
        rows = calls.get(host_range.thread)
        low = bisect_left(rows.start, host_range.start) if rows else 0
        high = bisect_right(rows.start, host_range.end) if rows else 0
        visits += high - low
        if visits > _MAX_VISITS:
            trace.diagnostics.append("Reader: ranges nest too deeply; pairs beyond 20 million are left out.")
            break
        groups[host_range.name].append(
            (host_range.end - host_range.start, *(_launched(rows, low, high, host_range.end) if rows else (0, 0, 0)))
        )
    rows_out = [_row(name, calls) for name, calls in groups.items()]
    return sorted(rows_out, key=lambda r: (-r.projected_ns, -r.total_ns, r.name))


def _by_thread(trace: Trace) -> dict[int, Launches]:
    """The calls that launched something, by thread."""
    launches = trace.gpu.launches
    assert launches is not None
    threads = [fact.thread for fact in trace.api.facts]
    of_call = [threads[fact] for fact in map(trace.api.fact.__getitem__, launches.call)]
    if len(several := set(of_call)) == 1:
        return {several.pop(): launches}
    by_thread: dict[int, list[int]] = defaultdict(list)
    for row, thread in enumerate(of_call):
        by_thread[thread].append(row)
    return {thread: launches.take(rows) for thread, rows in by_thread.items()}


def _launched(rows: Launches, low: int, high: int, end: int) -> tuple[int, int, int]:
    """Calls that end by then, from the start of their first operation to the end of the last, and the work's length."""
    inside: Sequence[int] | slice = slice(low, high)
    if max(rows.end[low:high], default=end) > end:
        inside = [row for row in range(low, high) if rows.end[row] <= end]
    launches = rows.take(inside)
    return len(launches.call), max(launches.last, default=0) - min(launches.first, default=0), sum(launches.spent)


def _row(name: str, calls: list[tuple[int, int, int, int]]) -> RangeStat:
    times = [f[0] for f in calls]
    return RangeStat(
        name=name,
        count=len(calls),
        total_ns=sum(times),
        median_ns=median(times),
        min_ns=min(times),
        max_ns=max(times),
        operations=sum(f[1] for f in calls),
        projected_ns=sum(f[2] for f in calls),
        gpu_ns=sum(f[3] for f in calls),
    )
