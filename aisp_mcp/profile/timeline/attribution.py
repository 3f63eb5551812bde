"""From device work back to the host calls that launched it: operators, modules, Python frames, and named ranges.

The launching call and the operator or frame around it are on one thread; nesting follows from time alone. Work that a
backward thread launches has operators there, but no Python frame, and is counted accordingly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from aisp_mcp.profile.records import CallStat, OpStat, RangeStat, ReplayStat
from aisp_mcp.profile.timeline.columns import Calls, LaunchColumns
from aisp_mcp.profile.timeline.events import GpuOp, HostCall
from aisp_mcp.profile.timeline.trace import Trace

OUTSIDE = "[launched outside of any]"
_MAX_DEPTH = 1000


class _Open:
    """A call that has not returned at the current point of the sweep."""

    __slots__ = ("end", "gpu", "name", "operations")

    def __init__(self, name: str, end: int) -> None:
        self.name, self.end = name, end
        self.gpu = self.operations = 0


class Launched(NamedTuple):
    """Device time by name of the enclosing calls."""

    whole: Counter[str]  # including children; a call inside one of its own name counts once
    own: dict[str, Counter[str]]  # innermost call → kernel → ns
    operations: Counter[str]


def attribute(
    calls: Sequence[HostCall], launches: dict[int, list[Launch]], ops: dict[tuple[int, int], list[GpuOp]]
) -> Launched:
    """launches: per thread, in order of start."""
    launched = Launched(Counter(), defaultdict(Counter), Counter())
    by_thread: dict[int, list[HostCall]] = defaultdict(list)
    for call in calls:
        if call.thread in launches:
            by_thread[call.thread].append(call)
    for thread, rows in launches.items():
        _sweep(sorted(by_thread[thread], key=lambda c: (c.start, -c.end)), rows, ops, launched)
    return launched


def _sweep(
    calls: Sequence[HostCall], launches: Sequence[Launch], ops: dict[tuple[int, int], list[GpuOp]], launched: Launched
) -> None:
    stack: list[_Open] = []
    names: Counter[str] = Counter()
    at = 0
    for start, _, link in launches:
        while at < len(calls) and calls[at].start <= start:
            _close(stack, names, launched, calls[at].start)
            if len(stack) < _MAX_DEPTH:
                stack.append(_Open(calls[at].name, calls[at].end))
                names[calls[at].name] += 1
            at += 1
        _close(stack, names, launched, start)
        inner = stack[-1] if stack else None
        for op in ops[link]:
            spent = op.end - op.start
            launched.own[inner.name if inner else OUTSIDE][op.name] += spent
            if inner:
                inner.gpu += spent
                inner.operations += 1
            else:
                launched.whole[OUTSIDE] += spent
                launched.operations[OUTSIDE] += 1
    _close(stack, names, launched, None)


def _close(stack: list[_Open], names: Counter[str], launched: Launched, now: int | None) -> None:
    """End the calls that returned before now; their work also counts for their callers."""
    while stack and (now is None or stack[-1].end <= now):
        done = stack.pop()
        names[done.name] -= 1
        if done.operations and not names[done.name]:
            launched.whole[done.name] += done.gpu
            launched.operations[done.name] += done.operations
        if stack:
            stack[-1].gpu += done.gpu
            stack[-1].operations += done.operations


def call_stats(rows: Sequence[OpStat], launched: Launched) -> list[CallStat]:
    """Host totals with the device work next to them, largest sum of both first; work without a launch comes last."""
    table = [_row(row, launched) for row in rows]
    if spent := launched.whole[OUTSIDE]:
        count = launched.operations[OUTSIDE]
        facts = {"total_ns": 0, "median_ns": 0, "min_ns": 0, "max_ns": 0, "share": 0.0}
        none = OpStat.model_validate({"name": OUTSIDE, "count": count, **facts})
        table.append(_row(none, launched).model_copy(update={"gpu_ns": spent}))
    return sorted(table, key=lambda r: (-r.self_gpu_ns - r.total_ns, r.name))


def _row(row: OpStat, launched: Launched) -> CallStat:
    own = launched.own.get(row.name)
    return CallStat(
        **row.model_dump(),
        operations=launched.operations[row.name],
        gpu_ns=launched.whole[row.name],
        self_gpu_ns=sum(own.values()) if own else 0,
        kernel=own.most_common(1)[0][0] if own else None,
    )


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


def project_ranges(trace: Trace) -> list[RangeStat]:
    """One row per name, ordered by projected time. A call counts if it is wholly inside, on the same thread, and once
    if ranges of one name are nested.
    """
    calls = _by_thread(trace)
    groups: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    visits = 0
    outer: dict[tuple[int, str], int] = {}  # end of the last range of a name that is in no other of that name
    for host_range in sorted(trace.ranges, key=lambda span: (span.start, -span.end)):
        key = (host_range.thread, host_range.name)
        nested = host_range.end <= outer.get(key, host_range.start)
        rows = None if nested else calls.get(host_range.thread)
        outer[key] = max(host_range.end, outer.get(key, host_range.end))
        low = bisect_left(rows.start, host_range.start) if rows else 0
        high = bisect_right(rows.start, host_range.end) if rows else 0
        visits += high - low
        if visits > _MAX_VISITS:
            trace.diagnostics.append("Reader: ranges nest too deeply; pairs beyond 20 million are left out.")
            break
        groups[host_range.name].append(
            (host_range.end - host_range.start, *(_launched(rows, low, high, host_range.end) if rows else (0, 0, 0)))
        )
    rows_out = [_range_row(name, calls) for name, calls in groups.items()]
    return sorted(rows_out, key=lambda r: (-r.projected_ns, -r.total_ns, r.name))


NOT_IN_A_RANGE = "[captured outside of any range]"
NOT_SAID = "[the recording does not say what captured it]"


def replays(trace: Trace) -> list[ReplayStat]:
    """Work of CUDA graphs by what captured it, most first; empty without graphs."""
    gpu = trace.gpu
    replayed: Counter[tuple[str, ...]] = Counter()
    operations: Counter[tuple[str, ...]] = Counter()

    def add(captured: tuple[str, ...], count: int, spent: int) -> None:
        replayed[captured] += spent
        operations[captured] += count

    for fact, times in zip(gpu.facts, gpu.durations(), strict=True):
        if fact.captured is not None and times:
            spent = sum(length * count for length, count in times.items())
            add(fact.captured or (NOT_IN_A_RANGE,), sum(times.values()), spent)
    launching = ["GraphLaunch" in fact.name for fact in trace.api.facts]
    if any(launching) and gpu.launches is not None:
        of_graphs = [launching[trace.api.fact[call]] for call in gpu.launches.call]
        for start, end, row, number in zip(gpu.start, gpu.end, gpu.launch, gpu.fact, strict=True):
            if row >= 0 and of_graphs[row] and gpu.facts[number].captured is None:
                add((NOT_SAID,), 1, end - start)
    rows = []
    for name in dict.fromkeys(name for captured in replayed for name in captured):
        inside = [captured for captured in replayed if name in captured]
        rows.append(
            ReplayStat(
                name=name,
                operations=sum(map(operations.__getitem__, inside)),
                gpu_ns=sum(map(replayed.__getitem__, inside)),
                self_gpu_ns=sum(replayed[captured] for captured in inside if captured[-1] == name),
            )
        )
    return sorted(rows, key=lambda row: (-row.gpu_ns, -row.self_gpu_ns, row.name))


def _by_thread(trace: Trace) -> dict[int, LaunchColumns]:
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


def _launched(rows: LaunchColumns, low: int, high: int, end: int) -> tuple[int, int, int]:
    """Calls that end by then, from the start of their first operation to the end of the last, and the work's length."""
    inside: Sequence[int] | slice = slice(low, high)
    if max(rows.end[low:high], default=end) > end:
        inside = [row for row in range(low, high) if rows.end[row] <= end]
    launches = rows.take(inside)
    return len(launches.call), max(launches.last, default=0) - min(launches.first, default=0), sum(launches.spent)


def _range_row(name: str, calls: list[tuple[int, int, int, int]]) -> RangeStat:
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
