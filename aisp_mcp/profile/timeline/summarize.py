"""From a trace to a profile: totals per name, and each device's use of time, in exact unions of intervals."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from operator import mul
from statistics import median
from typing import Literal

from aisp_mcp.errors import Unavailable
from aisp_mcp.profile.readers.allowance import collector_held
from aisp_mcp.profile.records import (
    Breakdown,
    CallStat,
    Collective,
    GapCause,
    KernelStat,
    OpStat,
    Profile,
    StreamStat,
    Timeline,
    Window,
)
from aisp_mcp.profile.timeline import attribution, idle, steps
from aisp_mcp.profile.timeline.columns import Calls, OpFact, Ops
from aisp_mcp.profile.timeline.events import GpuOp, HostCall, HostRange, LaunchShape, Message
from aisp_mcp.profile.timeline.intervals import Column, Cover, column
from aisp_mcp.profile.timeline.names import family
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.system.bus import FACTORS

Scope = Literal["all", "steady"]
_LARGE = 500_000  # operations and calls
_NEARLY = 0.99


@collector_held()
def profile(trace: Trace, scope: Scope = "all") -> Profile:
    """Summarise. all: every row of the file. steady: only the iterations, without the slow first ones.

    If a trace has fewer than three iterations, steady means first to last device operation.
    """
    if (known := trace.summaries.get(scope)) is not None:
        return known
    usable, window = scoped(trace, scope)
    summary = trace.summaries[scope] = Profile(
        source=trace.source,
        window=window,
        devices=trace.devices,
        rank=trace.rank,
        diagnostics=[*usable.faults, *trace.diagnostics],
        faults=usable.faults,
        missing=usable.missing,
        timeline=_timeline(usable, window),
    )
    return summary


def judged(trace: Trace, shown: Profile) -> Profile:
    """The profile that insights are about: steady iterations. shown: the profile of the whole trace.

    For a large trace with only iterations, the two differ by less than a hundredth and take equally long to make.
    """
    return shown if _only_iterations(trace.ordered, shown) else profile(trace, "steady")


def _only_iterations(trace: Trace, shown: Profile) -> bool:
    launches, iterations = trace.gpu.launches, steps.find(trace.ranges)
    if len(trace.gpu) + len(trace.api) < _LARGE or launches is None or shown.window is None or len(iterations) < 3:
        return False
    steady, _ = _steady(iterations)
    low, high = steady[0].start, steady[-1].end
    inside = bisect_left(launches.start, high) - bisect_left(launches.start, low)
    whole = shown.window.duration_ns
    return inside >= _NEARLY * len(launches.start) and high - low >= _NEARLY * whole


def scoped(trace: Trace, scope: Scope) -> tuple[Trace, Window]:
    """The part of a trace in this scope, and its window. Raises Unavailable EMPTY_PROFILE."""
    trace = trace.ordered
    host_ranges = steps.find(trace.ranges)
    if scope == "steady" and len(host_ranges) >= 3:
        return _iterations(trace, *_steady(host_ranges))
    if trace.gpu:
        first, last = min(trace.gpu.start), max(trace.gpu.end)
        return trace, Window(start_ns=first, end_ns=last, definition="first to last device operation")
    host: list[HostCall | HostRange] = [*trace.operators, *trace.ranges, *trace.api, *trace.frames]
    if not host:
        raise Unavailable(
            "EMPTY_PROFILE",
            " ".join(["The profile contains no operation of device or host.", *trace.diagnostics[:3]]),
            "Record again with -t cuda,nvtx, with NVTX ranges where there is no GPU.",
        )
    first, last = min(c.start for c in host), max(c.end for c in host)
    return trace, Window(start_ns=first, end_ns=last, definition="first to last host operation (no device activity)")


def _steady(host_ranges: list[HostRange]) -> tuple[list[HostRange], int]:
    """Drop first iterations that took over twice the median of those after them, at most half of all."""
    dropped = 0
    while dropped < len(host_ranges) // 2:
        rest = median(r.end - r.start for r in host_ranges[dropped + 1 :])
        if host_ranges[dropped].end - host_ranges[dropped].start <= 2 * rest:
            break
        dropped += 1
    return host_ranges[dropped:], dropped


def _iterations(trace: Trace, iterations: list[HostRange], dropped: int) -> tuple[Trace, Window]:
    """The device work that these iterations launched, which may end long after the host has moved on."""
    low, high = iterations[0].start, iterations[-1].end
    ops, calls = trace.gpu, trace.api
    assert ops.launches is not None
    called = ops.launches.start
    at = column(called[row] if row >= 0 else start for row, start in zip(ops.launch, ops.start, strict=True))
    indices = column(index for index, launched in enumerate(at) if low <= launched < high)
    earlier = max((end for end, launched in zip(ops.end, at, strict=True) if launched < low), default=None)
    first_call, last_call = bisect_left(calls.start, low), bisect_left(calls.start, high)
    cut_ops = ops.cut(indices, first_call, last_call)
    text = f"{len(iterations)} iterations, {dropped} slow first ones left out: "
    if indices:
        # The wait for the first operation belongs to its iteration; without earlier work, its length is unknown.
        first = min(cut_ops.start)
        start = earlier if dropped and earlier is not None and earlier < first else first
        end, text = max(cut_ops.end), text + "the device work that they launched"
    else:
        start, end, text = low, high, text + "host start of the first to end of the last"
    cut = replace(
        trace,
        gpu=cut_ops,
        api=calls.part(first_call, last_call),
        operators=[c for c in trace.operators if low <= c.start < high],
        frames=[c for c in trace.frames if low <= c.start < high],
        ranges=[r for r in trace.ranges if low <= r.start < high],
    )
    return cut, Window(start_ns=start, end_ns=end, definition=text)


def _timeline(trace: Trace, window: Window) -> Timeline:
    rows, waiting, collected = [], idle.Waiting(trace), idle.Waits.none()
    covers = []
    for device, indices in sorted(_by_device(trace.gpu).items()):
        ops = trace.gpu if isinstance(indices, range) else trace.gpu.take(indices)
        busy = Cover.of(ops.start, ops.end)
        unsure = trace.unsure.get(device)
        gaps = idle.waits(trace.gpu, indices, busy, trace.api, waiting, unsure)
        collected.extend(gaps)
        rows.append(_breakdown(device, ops, busy, gaps.spent(), window, unsure, trace.of_a_job))
        covers.append(busy)
    times = trace.gpu.durations()
    return Timeline(
        kernels=kernel_stats(trace.gpu, times, trace.of_a_job),
        memory=memory_stats(trace.gpu, times),
        api=_api_stats(trace.api),
        syncs=op_stats((name, {ns: 1}, None) for name, ns in trace.syncs),
        **_host_work(trace),
        ranges=attribution.project_ranges(trace),
        replays=attribution.replays(trace),
        breakdown=rows,
        streams=_streams(trace.gpu, times),
        gaps=idle.longest(collected, trace),
        steps=steps.measure(steps.find(trace.ranges), trace, Cover.merged(covers)),
        collectives=collectives(trace.gpu, times),
        host_in_gaps=idle.host_shares(trace, collected),
        host_gaps=sum(map(collected.cause.count, map(idle.CAUSES.index, idle.HOST))),
        stream_waits=waiting.known,
    )


def _host_work(trace: Trace) -> dict[str, list[CallStat]]:
    """Operators and frames with the device work that they launched."""
    if not trace.operators and not trace.frames:
        return {"operators": [], "frames": []}
    ops = attribution.launched_by(trace)
    launches = attribution.launch_calls(trace.api, ops)
    return {"operators": _calls(trace.operators, launches, ops), "frames": _calls(trace.frames, launches, ops)}


def _calls(
    calls: Sequence[HostCall], launches: dict[int, list[attribution.Launch]], ops: dict[tuple[int, int], list[GpuOp]]
) -> list[CallStat]:
    if not calls:
        return []
    attributed = attribution.attribute(calls, launches, ops)
    return attribution.call_stats(op_stats((c.name, {c.end - c.start: 1}, None) for c in calls), attributed)


def _api_stats(api: Calls) -> list[OpStat]:
    return op_stats(
        (_api_name(fact.name), times, None) for fact, times in zip(api.facts, api.durations(), strict=True) if times
    )


@lru_cache(maxsize=4096)
def _api_name(name: str) -> str:
    """The name without the version that the driver appends: cudaLaunchKernel_v7000."""
    stem, mark, digits = name.rpartition("_v")
    return stem if mark and len(digits) == 4 and digits.isdigit() else name


def _by_device(gpu: Ops) -> dict[int, Sequence[int]]:
    """Indices of each device's operations."""
    devices = [fact.device for fact in gpu.facts]
    if len(set(devices)) == 1:
        return {devices[0]: range(len(gpu))} if gpu else {}
    columns: dict[int, Column] = defaultdict(column)
    for index, fact in enumerate(gpu.fact):
        columns[devices[fact]].append(index)
    return dict(columns)


_GROUP = {"kernel": "compute", "communication": "communication", "memcpy": "memory", "memset": "memory"}


def _breakdown(
    device: int,
    ops: Ops,
    busy: Cover,
    causes: dict[GapCause, int],
    window: Window,
    unsure: Cover | None,
    of_a_job: bool,
) -> Breakdown:
    def group(fact: OpFact) -> str:
        unknown = of_a_job and fact.kind == "kernel" and family(fact.name) == "other"
        return "unknown" if unknown else _GROUP[fact.kind]

    groups = ops.covers(group)
    none = Cover(column(), column())
    compute, comm, memory = (groups.get(kind, none) for kind in ("compute", "communication", "memory"))
    unclear = Cover.merged([compute, groups.get("unknown", none)])
    computing, reached = compute.length(), unclear.length()
    kernels = Cover.merged([unclear, comm]).length()
    ends = [(window.start_ns, busy.begin[0]), (busy.end[-1], window.end_ns)] if busy.begin else []
    hidden = sum(end - start for start, end in ends if unsure and end > start and unsure.inside(start, end))
    return Breakdown(
        device=device,
        span_ns=window.end_ns - window.start_ns,
        compute_ns=computing,
        communication_ns=comm.length(),
        memory_ns=memory.length(),
        unknown_ns=reached - computing,
        exposed_communication_ns=kernels - reached,
        exposed_memory_ns=busy.length() - kernels,
        idle_host_ns=sum(causes[cause] for cause in idle.HOST),
        idle_kernel_ns=causes["kernel"],
        idle_dependency_ns=causes["dependency"],
        idle_other_ns=causes["other"],
        idle_unknown_ns=causes["unknown"] + hidden,
        idle_edge_ns=window.end_ns - window.start_ns - busy.length() - sum(causes.values()) - hidden,
    )


Times = Mapping[int, int]  # occurrences by duration in ns


def op_stats(rows: Iterable[tuple[str, Times, int | None]]) -> list[OpStat]:
    """(name, durations, bytes of all) grouped by name, largest total first."""
    times: dict[str, Counter[int]] = defaultdict(Counter)
    sizes: dict[str, int] = defaultdict(int)
    for name, spans, size in rows:
        times[name].update(spans)
        if size is not None:
            sizes[name] += size
    totals = {name: _total(spans) for name, spans in times.items()}
    whole = sum(totals.values())
    table = [
        OpStat(
            name=name,
            count=spans.total(),
            total_ns=totals[name],
            median_ns=_median(spans),
            min_ns=min(spans),
            max_ns=max(spans),
            share=totals[name] / whole if whole else 0.0,
            bytes=sizes.get(name),
        )
        for name, spans in times.items()
    ]
    return sorted(table, key=lambda r: (-r.total_ns, r.name))


def _total(times: Times) -> int:
    return sum(map(mul, times.keys(), times.values()))


def _median(times: Times) -> float:
    """As statistics.median: between the two middle ones if their number is even."""
    order = sorted(times)
    upto = list(accumulate(map(times.__getitem__, order)))
    low, high = (order[bisect_left(upto, rank)] for rank in ((upto[-1] + 1) // 2, upto[-1] // 2 + 1))
    return low if upto[-1] % 2 else (low + high) / 2


def kernel_stats(gpu: Ops, times: Sequence[Times], of_a_job: bool = False) -> list[KernelStat]:
    """Kernels by name, including communication, with the launch facts of each one's longest launch.

    of_a_job: a kernel whose name says nothing may communicate with other ranks, so its kind is unknown.
    """
    kernels = [
        (fact, spans)
        for fact, spans in zip(gpu.facts, times, strict=True)
        if spans and fact.kind in ("kernel", "communication")
    ]
    shapes = _longest_shapes(gpu, times)
    rows = []
    for row in op_stats((fact.name, spans, None) for fact, spans in kernels):
        shape = shapes[row.name]
        facts = {} if shape is None else shape._asdict()
        kind = family(row.name)
        rows.append(KernelStat(**row.model_dump(), kind="unknown" if of_a_job and kind == "other" else kind, **facts))
    return rows


def _longest_shapes(gpu: Ops, times: Sequence[Times]) -> dict[str, LaunchShape | None]:
    """Shape of the longest launch of each name, of the first of several that took as long."""
    longest: dict[str, tuple[int, dict[int, LaunchShape | None]]] = {}
    for at, (fact, spans) in enumerate(zip(gpu.facts, times, strict=True)):
        if spans and fact.kind in ("kernel", "communication"):
            ns, best = max(spans), longest.get(fact.name, (-1, {}))
            if ns > best[0]:
                best = longest[fact.name] = (ns, {})
            if ns == best[0]:
                best[1][at] = fact.shape
    shapes = {name: next(iter(facts.values())) for name, (_, facts) in longest.items()}
    open_ = {at: ns for ns, facts in longest.values() if len(set(facts.values())) > 1 for at in facts}
    if open_:
        for fact_index, start, end in zip(reversed(gpu.fact), reversed(gpu.start), reversed(gpu.end), strict=True):
            if open_.get(fact_index) == end - start:
                shapes[gpu.facts[fact_index].name] = gpu.facts[fact_index].shape
    return shapes


def memory_stats(gpu: Ops, times: Sequence[Times]) -> list[OpStat]:
    """Copies by direction and kinds of memory, and memsets."""
    return op_stats(
        (fact.name, spans, fact.bytes * sum(spans.values()))
        for fact, spans in zip(gpu.facts, times, strict=True)
        if spans and fact.kind in ("memcpy", "memset")
    )


def _streams(gpu: Ops, times: Sequence[Times]) -> list[StreamStat]:
    covers = gpu.covers(lambda fact: (fact.device, fact.stream))
    operations: Counter[tuple[int, int]] = Counter()
    for fact, spans in zip(gpu.facts, times, strict=True):
        operations[fact.device, fact.stream] += sum(spans.values())
    rows = [
        StreamStat(device=device, stream=stream, operations=many, busy_ns=covers[device, stream].length())
        for (device, stream), many in operations.items()
        if many
    ]
    return sorted(rows, key=lambda r: (r.device, -r.busy_ns, r.stream))


def collectives(gpu: Ops, times: Sequence[Times]) -> list[Collective]:
    """Communication kernels by collective, message and group."""
    groups: dict[Message, Counter[int]] = defaultdict(Counter)
    for fact, spent in zip(gpu.facts, times, strict=True):
        if spent and fact.kind == "communication" and fact.message is not None:
            groups[fact.message].update(spent)
    rows = []
    for message, calls in groups.items():
        rows.append(
            Collective(
                name=message.collective,
                count=calls.total(),
                total_ns=_total(calls),
                min_ns=min(calls),
                max_ns=max(calls),
                bytes=message.bytes,
                ranks=message.ranks,
                dtype=message.dtype,
                busbw_bytes_per_s=busbw(message.collective, message.bytes, message.ranks, _median(calls)),
            )
        )
    return sorted(rows, key=lambda r: (-r.total_ns, r.name))


def busbw(name: str, size: int | None, ranks: int | None, ns: float) -> float | None:
    """Bytes per second; None if the trace lacks the size or the group, or the collective has no convention."""
    if not size or not ranks or not ns or name not in FACTORS:
        return None
    return size / (ns * 1e-9) * FACTORS[name](ranks)
