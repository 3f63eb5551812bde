"""Causes of a device's idle time: every gap between operations, classified by what it waited for."""

from __future__ import annotations

import heapq
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from operator import sub
from typing import NamedTuple, get_args

from aisp_mcp.profile.records import Gap, GapCause, HostShare
from aisp_mcp.profile.timeline.columns import Calls, Ops
from aisp_mcp.profile.timeline.events import HOST_FUNCTIONS, HostCall, HostRange
from aisp_mcp.profile.timeline.intervals import Column, Cover, column
from aisp_mcp.profile.timeline.trace import Trace

KERNEL_GAP_NS = 10_000  # a shorter gap before already launched work is the device's own turnaround
_SHOWN = 50
BLOCKED = "blocked in a launch call"
RECORDED, UNRECORDED = "host code in recorded operators, frames or ranges", "nothing recorded"
CAUSES: Sequence[GapCause] = get_args(GapCause)
_UNKNOWN, _HOST, _HELD, _TURN, _TOLD, _OTHER = map(
    CAUSES.index, ("unknown", "host", "host blocked", "kernel", "dependency", "other")
)


class Waits(NamedTuple):
    """Gaps as columns. cause: index in CAUSES. ended_by: index of the operation. launch: index of its call, or -1."""

    start: Column
    end: Column
    cause: Column
    ended_by: Column
    launch: Column

    @classmethod
    def none(cls) -> Waits:
        return cls(column(), column(), array("b"), array("i"), array("i"))

    def extend(self, more: Waits) -> None:
        for values, more_values in zip(self, more, strict=True):
            values.extend(more_values)

    def spent(self) -> dict[GapCause, int]:
        """Nanoseconds by cause."""
        totals = [0] * len(CAUSES)
        for cause, ns in zip(self.cause, map(sub, self.end, self.start), strict=True):
            totals[cause] += ns
        return dict(zip(CAUSES, totals, strict=True))


def waits(
    ops: Ops, indices: Sequence[int], busy: Cover, calls: Calls, waiting: Waiting, unsure: Cover | None = None
) -> Waits:
    """Gaps between the intervals of one device's busy time. indices: of its operations, in order of start.

    unsure: times in which the device may have worked without a record.
    """
    assert ops.launches is not None
    started, row_of, called = ops.start, ops.launch, ops.launches.call
    begun, ended = calls.start, calls.end
    all_waits = Waits(busy.end[:-1], busy.begin[1:], array("b"), array("i"), array("i"))
    at = 0
    for left, right in zip(all_waits.start, all_waits.end, strict=True):
        while started[indices[at]] < right:
            at += 1
        index = indices[at]
        row = row_of[index]
        launch = called[row] if row >= 0 else -1
        if launch < 0 or (unsure and unsure.inside(left, right)):
            cause = _UNKNOWN
        elif begun[launch] >= left:
            cause = _HOST
        elif right - left <= KERNEL_GAP_NS:
            cause = _TURN
        elif ended[launch] > left:
            cause = _HELD
        else:
            cause = _TOLD if waiting.before(ops, index) else _OTHER
        all_waits.cause.append(cause)
        all_waits.ended_by.append(index)
        all_waits.launch.append(launch)
    return all_waits


class Waiting:
    """Operations that wait for an event or a host function on their stream.

    Correlation ids count a process's calls in order. The call that queues a host function does not name its stream: it
    counts for a stream if the launches before and after it went there.
    """

    def __init__(self, trace: Trace) -> None:
        self._waits: dict[tuple[int, int], Column] = defaultdict(column)
        self._launched: dict[tuple[int, int], Column] = defaultdict(column)
        self.known = 0
        for wait in trace.waits:
            self._waits[wait.link[0], wait.stream].append(wait.link[1])
        self._host_functions(trace)
        streams = [(fact.process, fact.stream) for fact in trace.gpu.facts]
        rows = [self._launched[stream] if stream in self._waits else None for stream in streams]
        if any(row is not None for row in rows):
            for number, fact in zip(trace.gpu.number, trace.gpu.fact, strict=True):
                if (row := rows[fact]) is not None:
                    row.append(number)
        for group in (self._waits, self._launched):
            group.update({stream: column(sorted(row)) for stream, row in group.items()})
        self.known = sum(len(row) for row in self._waits.values())

    def _host_functions(self, trace: Trace) -> None:
        is_host_function = [fact.name.startswith(HOST_FUNCTIONS) for fact in trace.api.facts]
        if not any(is_host_function):
            return
        facts = trace.api.facts
        rows = zip(trace.api.number, trace.api.fact, strict=True)
        queued = [(facts[fact].process, number) for number, fact in rows if is_host_function[fact]]
        launched = sorted((op.link, op.stream) for op in trace.gpu) if queued else []
        for link in queued:
            at = bisect_left(launched, (link, 0))
            around = {stream for (process, _), stream in launched[max(at - 1, 0) : at + 1] if process == link[0]}
            if len(around) == 1:
                self._waits[link[0], around.pop()].append(link[1])

    def before(self, ops: Ops, index: int) -> bool:
        """Return True if a wait was enqueued between the launches of the stream's previous operation and this one."""
        fact, number = ops.facts[ops.fact[index]], ops.number[index]
        stream = (fact.process, fact.stream)
        if stream not in self._waits:
            return False
        launched, waits = self._launched.get(stream, ()), self._waits[stream]
        at = bisect_left(launched, number)
        previous = launched[at - 1] if at else 0
        return bisect_left(waits, number) > bisect_right(waits, previous)


def longest(all_waits: Waits, trace: Trace) -> list[Gap]:
    """The longest gaps of all devices, with the launching thread's activity in them."""
    rows = []
    ranked = zip(map(sub, all_waits.start, all_waits.end), all_waits.start, count())
    for negative_ns, start, at in heapq.nsmallest(_SHOWN, ranked):
        launch, op = all_waits.launch[at], trace.gpu[all_waits.ended_by[at]]
        end = start - negative_ns
        rows.append(
            Gap(
                device=op.device,
                start_ns=start,
                duration_ns=-negative_ns,
                cause=CAUSES[all_waits.cause[at]],
                before=op.name,
                host=_main_call(_around(trace.api, trace.api[launch].thread, start, end), start, end)
                if launch >= 0
                else None,
            )
        )
    return rows


def _around(api: Calls, thread: int, start: int, end: int) -> list[HostCall]:
    """A thread's calls that begin in [start, end], and the last one before them."""
    low, high = bisect_left(api.start, start), bisect_right(api.start, end)
    of_thread = {at for at, fact in enumerate(api.facts) if fact.thread == thread}
    calls = [api[at] for at in range(low, high) if api.fact[at] in of_thread]
    before = next((at for at in range(low - 1, -1, -1) if api.fact[at] in of_thread), None)
    return calls if before is None else [api[before], *calls]


def _main_call(calls: Sequence[HostCall], start: int, end: int) -> str:
    """The call with most time inside the gap; "outside recorded calls" if no call takes as much as all the rest."""
    spent: dict[str, int] = defaultdict(int)
    for call in calls:
        spent[call.name] += max(0, min(call.end, end) - max(call.start, start))
    name, most = max(spent.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return name if most * 2 > end - start else "outside recorded calls"


_ORDER = (
    "input",
    "compile",
    "load code",
    "allocate",
    "synchronize",
    BLOCKED,
    "copy",
    "launch",
    "other CUDA call",
    RECORDED,
)
HOST: Sequence[GapCause] = ("host", "host blocked")


def host_shares(trace: Trace, all_waits: Waits) -> list[HostShare]:
    """The gaps caused by the host, divided by its activity: each nanosecond counts once, for the first match.

    synchronize: the whole rest of a gap that began while the launching thread was blocked in a call, since nothing
    could be queued ahead.
    """
    by_host = column(at for at, cause in enumerate(all_waits.cause) if cause in _BY_HOST)
    by_host = column(sorted(by_host, key=all_waits.start.__getitem__))  # those of several devices
    start, end, launch = (
        column(map(values.__getitem__, by_host)) for values in (all_waits.start, all_waits.end, all_waits.launch)
    )
    left, ended = Cover.of(start, end), trace.api.end
    groups = _busy_host(trace)
    groups["synchronize"].append(_cover(_after_blocking(trace.api, zip(start, end, launch, strict=True))))
    gaps = zip(start, end, launch, map(all_waits.cause.__getitem__, by_host), strict=True)
    groups[BLOCKED].append(_cover((low, min(high, ended[call])) for low, high, call, cause in gaps if cause == _HELD))
    groups[RECORDED].append(_recorded(trace))
    rows, rest = [], left.length()
    for kind in _ORDER:
        if not (busy := Cover.merged(groups.pop(kind, []))).begin:
            continue
        left = left.without(busy)
        before, rest = rest, left.length()
        if before > rest:
            rows.append(HostShare(activity=kind, ns=before - rest))
    if rest:
        rows.append(HostShare(activity=UNRECORDED, ns=rest))
    return sorted(rows, key=lambda r: -r.ns)


def _recorded(trace: Trace) -> Cover:
    """Times in which the host was inside an operator, a Python frame or a range, which proves that its code was
    running.
    """
    events: list[HostRange | HostCall] = [*trace.operators, *trace.frames, *trace.ranges]
    return _cover(sorted((event.start, event.end) for event in events))


_BY_HOST = {CAUSES.index(cause) for cause in HOST}


def _cover(pairs: Iterable[tuple[int, int]]) -> Cover:
    """Union of intervals in order of start."""
    rows = list(pairs)
    return Cover.of((row[0] for row in rows), (row[1] for row in rows))


def _busy_host(trace: Trace) -> dict[str, list[Cover]]:
    """Times of calls by kind, and of ranges and operators whose name indicates one."""
    covers: dict[str, list[Cover]] = defaultdict(list)
    for kind, cover in trace.api.covers(lambda fact: call_kind(fact.name)).items():
        covers[kind].append(cover)
    named: dict[str, list[tuple[int, int]]] = defaultdict(list)
    events: list[HostRange | HostCall] = [*trace.ranges, *trace.operators]
    for event in events:
        if kind_of := range_kind(event.name):
            named[kind_of].append((event.start, event.end))
    for kind, pairs in named.items():
        covers[kind].append(_cover(sorted(pairs)))
    return covers


def _after_blocking(api: Calls, gaps: Iterable[tuple[int, int, int]]) -> Iterable[tuple[int, int]]:
    """Gaps at whose start the launching thread was inside a call that waits for the device."""
    by_thread = api.parted(lambda fact: fact.thread if blocking(fact.name) else None)
    if not by_thread:
        return
    threads = [fact.thread for fact in api.facts]
    for start, end, launch in gaps:
        if (calls := by_thread.get(threads[api.fact[launch]])) is not None:
            at = bisect_right(calls[0], start) - 1
            if at >= 0 and calls[1][at] >= start:
                yield start, end


_KINDS = (
    ("synchronize", re.compile(r"synchronize|(?:cuda|hip)(?:Stream|Event)Query|_local_scalar_dense", re.I)),
    (
        "load code",
        re.compile(r"module(?:load|getfunction)|libraryload|librarygetkernel|cuLinkAdd|cuLinkComplete|nvrtc", re.I),
    ),
    (
        "allocate",
        re.compile(
            r"malloc|(?:cu(?:da)?|hip)(?:mem)?free(?!async)|hostalloc|hostregister|memalloc|hostunregister|memmap|memcreate",
            re.I,
        ),
    ),
    ("launch", re.compile(r"launch", re.I)),
    ("copy", re.compile(r"memcpy|memset|memprefetch", re.I)),
)
_INPUT = re.compile(r"data_?loader|next_?batch|load_?batch|data_?wait|fetch_?batch|get_?batch", re.I)
_COMPILE = re.compile(
    r"dynamo|inductor|torch_?compile|aot_?autograd|jit_?compile|compile_?fx|compile[rd]?_?(?:fn|inner|frame)", re.I
)


@lru_cache(maxsize=4096)
def call_kind(name: str) -> str:
    """synchronize, load code, allocate, launch, copy or other CUDA call."""
    return next((label for label, pattern in _KINDS if pattern.search(name)), "other CUDA call")


@lru_cache(maxsize=4096)
def range_kind(name: str) -> str | None:
    """input or compile for a range or operator with such a name, else None."""
    if _INPUT.search(name):
        return "input"
    return "compile" if _COMPILE.search(name) else None


@lru_cache(maxsize=4096)
def blocking(name: str) -> bool:
    """Return True if this call makes the host wait for the device."""
    return "ynchronize" in name or bool(
        re.fullmatch(r"(?:cuda|cu|hip)Memcpy(?:2D|3D|HtoD|DtoH|ToSymbol|WithStream)?(?:_v\d+)?(?:_ptds)?", name)
    )
