"""Events that cannot be true: found after every reader, cut or left out, counted, and named before any other sentence.

What the damage hides stays unknown. An operation that the file lacks has run at some time after its launch, and idle
time of its device in that time has no known cause.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress, islice
from operator import sub
from statistics import median
from typing import NamedTuple, TypeVar

from aisp_mcp.profile.readers.text import duration
from aisp_mcp.profile.timeline.columns import Calls, Ops
from aisp_mcp.profile.timeline.events import HostCall, HostRange
from aisp_mcp.profile.timeline.intervals import Cover

HostEvent = TypeVar("HostEvent", HostCall, HostRange)
_STRETCH = 1000  # times longer that a window becomes by its outliers
_FEW = 0.1  # at most this share of the operations are outliers, or run past the next one by damage
_CLOCK_NS = 1000  # a start before its launch by less is within the precision of the two clocks
_PEERS = 3  # other operations of a name that show its usual duration
_EVER = 2**62
_LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:Ext|Module)*Launch(?!HostFunc)|(?:cuda|cu|hip)GraphLaunch")
_DRAINS = re.compile(r"(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize")
_IN_ORDER = re.compile(r"cu(?:da)?[A-Z]")


class Checked(NamedTuple):
    """faults: sentences. missing: launches without usable operations. unsure: by device, times in which causes of idle
    time are unknown.
    """

    gpu: Ops
    faults: list[str]
    missing: int
    unsure: dict[int, Cover]


def check(gpu: Ops, api: Calls, in_order: bool) -> Checked:
    """gpu and api: in order of start, and joined. in_order: operations of one stream never run at the same time."""
    faults: list[str] = []
    if not gpu:
        return Checked(gpu, faults, _unrecorded(api, faults), {})
    in_order = in_order or any(_IN_ORDER.match(fact.name) for fact in api.facts)
    in_order = in_order and not any(fact.name.startswith("hip") for fact in api.facts)
    gpu, hidden = _dated(gpu, api, faults)
    if _cut(gpu, api, in_order, faults):
        gpu.join(api)
    lost = _without_operation(gpu, api, hidden, faults)
    unsure = _hidden(gpu, api, sorted({*lost, *hidden})) if lost or hidden else {}
    for device in _clocks(gpu, faults):
        unsure[device] = Cover.of((-_EVER,), (_EVER,))
    return Checked(gpu, faults, len(lost) + len(hidden), unsure)


def dated(events: list[HostEvent], faults: list[str], what: str) -> list[HostEvent]:
    """Without host events at time 0, if all others are far from it."""
    timed = [event for event in events if event.start]
    if not timed or len(timed) == len(events):
        return events
    begin = min(event.start for event in timed)
    if begin <= _STRETCH * max(1, max(event.end for event in timed) - begin):
        return events
    faults.append(f"{len(events) - len(timed):,} of {len(events):,} {what} have no time (they start at 0): left out.")
    return timed


def _dated(gpu: Ops, api: Calls, faults: list[str]) -> tuple[Ops, set[int]]:
    """The operations whose start can be true, and the calls that launched the others."""
    untimed, far = _untimed(gpu, api), set[int]()
    if len(untimed) < len(gpu):
        far = _outliers(gpu, untimed)
    if not untimed and not far:
        return gpu, set()
    if untimed:
        faults.append(f"{len(untimed):,} of {len(gpu):,} device operations have no time (they start at 0): left out.")
    if far:
        faults.append(
            f"{len(far):,} of {len(gpu):,} device operations are so far from all others that the window would be over "
            f"{_STRETCH:,} times as long: left out."
        )
    assert gpu.launches is not None
    called = gpu.launches.call
    hidden = {called[gpu.launch[at]] for at in untimed | far if gpu.launch[at] >= 0}
    kept = gpu.take([at for at in range(len(gpu)) if at not in untimed and at not in far])
    kept.join(api)
    return kept, hidden


def _untimed(gpu: Ops, api: Calls) -> set[int]:
    """Operations that start at 0, where the trace itself begins later: after their launch, or long after 0."""
    low, high = bisect_left(gpu.start, 0), bisect_right(gpu.start, 0)
    if low == high:
        return set()
    assert gpu.launches is not None
    begun = gpu.launches.start
    contradicted = {at for at in range(low, high) if gpu.launch[at] >= 0 and begun[gpu.launch[at]] > 0}
    streams: dict[int, list[int]] = defaultdict(list)
    for at in range(low, high):
        streams[gpu.fact[at]].append(at)
    at_once = {at for rows in streams.values() if len(rows) > 1 for at in rows if gpu.launch[at] < 0}
    rest = [*gpu.start[high : high + 1], *(start for start in api.start[:1] if start > 0)]
    far = bool(rest) and min(rest) > _STRETCH * max(1, max(gpu.end) - min(rest))
    return set(range(low, high)) if far else contradicted | at_once


def _outliers(gpu: Ops, untimed: set[int]) -> set[int]:
    """The few operations beyond a pause that is longer than all else, and that no launch explains."""
    rows = [at for at in range(len(gpu)) if at not in untimed] if untimed else range(len(gpu))
    starts = [gpu.start[at] for at in rows] if untimed else gpu.start
    far: set[int] = set()
    low, high = 0, len(rows)
    most = _FEW * len(rows)
    while high - low > 2:
        pause, split = max(
            zip(map(sub, islice(starts, low + 1, high), islice(starts, low, high)), range(low + 1, high), strict=False)
        )
        window = starts[high - 1] - starts[low]
        if (window - pause) * _STRETCH > window:
            break
        before = split - low <= high - split
        some = range(low, split) if before else range(split, high)
        if len(far) + len(some) > most or any(_launched_there(gpu, rows[at], starts[split], before) for at in some):
            break
        far.update(rows[at] for at in some)
        low, high = (split, high) if before else (low, split)
    return far


def _launched_there(gpu: Ops, at: int, split: int, before: bool) -> bool:
    """Return True if the operation's launch is on the same side of the pause."""
    assert gpu.launches is not None
    row = gpu.launch[at]
    return row >= 0 and (gpu.launches.start[row] < split) == before


def _cut(gpu: Ops, api: Calls, in_order: bool, faults: list[str]) -> bool:
    """Let no operation run past the next one of its stream. Overlap with the next one alone is how programmatic
    dependent launches look; nodes of one graph, which share a launch, run side by side.
    """
    rows = _past_the_next(gpu, in_order)
    host = max(api.end, default=0)
    last = max(range(len(gpu)), key=gpu.end.__getitem__)
    rest = max((end for at, end in enumerate(gpu.end) if at != last and at not in rows), default=host)
    until = max(host, rest, gpu.start[last])
    begin = min(gpu.start[0], api.start[0]) if api else gpu.start[0]
    if api and last not in rows and gpu.end[last] - begin > _STRETCH * max(1, until - begin):
        rows[last] = until
    elif api:
        rows |= _outlasting(gpu, rows, begin, host)
    if not rows:
        return False
    worst = max(rows, key=lambda at: gpu.end[at] - rows[at])
    length, short = (duration(end - gpu.start[worst]) for end in (gpu.end[worst], rows[worst]))
    which = "run" if len(rows) > 1 else "runs"
    faults.append(
        f"{len(rows):,} of {len(gpu):,} durations {which} past the start of the next operation on the same stream, or "
        f"past all other events: cut there (the longest from {length} to {short})."
    )
    for at, end in rows.items():
        gpu.end[at] = end
    return True


def _outlasting(gpu: Ops, rows: dict[int, int], begin: int, host: int) -> dict[int, int]:
    """Kernels that outlast all else by more than the rest of the trace, and usually take a thousandth of that."""
    until = max(host, gpu.start[-1])
    if max(gpu.end) - until <= until - begin:
        return {}
    times: dict[str, list[int]] = defaultdict(list)
    names = [fact.name if fact.kind == "kernel" else "" for fact in gpu.facts]
    for fact, start, end in zip(gpu.fact, gpu.start, gpu.end, strict=True):
        times[names[fact]].append(end - start)
    usual = {name: median(spent) for name, spent in times.items() if name and len(spent) > _PEERS}
    far = [
        at
        for at, (start, end, fact) in enumerate(zip(gpu.start, gpu.end, gpu.fact, strict=True))
        if at not in rows and end - start > _STRETCH * usual.get(names[fact], end)
    ]
    rest = set(range(len(gpu))).difference(far)
    until = max(until, max((rows.get(at, gpu.end[at]) for at in rest), default=until))
    return {at: until for at in far if gpu.end[at] - until > until - begin}


def _past_the_next(gpu: Ops, in_order: bool) -> dict[int, int]:
    """Ends at which to cut, by operation. Streams that often overlap are not in order, whatever the file calls them."""
    numbers: dict[tuple[int, int, int], int] = {}
    of_fact = [numbers.setdefault((f.process, f.device, f.stream), len(numbers)) for f in gpu.facts]
    following: list[tuple[int, int, int] | None] = [None] * len(numbers)
    counts, found = [0] * len(numbers), [dict[int, int]() for _ in numbers]
    whole = gpu.start[-1] - gpu.start[0]
    backwards = (reversed(column) for column in (gpu.start, gpu.end, gpu.number, gpu.fact))
    for at, (start, end, number, fact) in enumerate(zip(*backwards, strict=True)):
        stream = of_fact[fact]
        counts[stream] += 1
        after = following[stream]
        if after is not None and end > after[1] and after[0] > start and (not number or number != after[2]):
            found[stream][len(gpu) - 1 - at] = after[0]
            end = after[0]
        if end > start:
            following[stream] = (start, end, number)
    rows: dict[int, int] = {}
    for cuts, many in zip(found, counts, strict=True):
        few = in_order and len(cuts) <= max(1, _FEW * many)
        rows |= cuts if few else {at: cut for at, cut in cuts.items() if gpu.end[at] - gpu.start[at] > whole}
    return rows


def _clocks(gpu: Ops, faults: list[str]) -> set[int]:
    """Devices whose operations start before their launch: no comparison of host and device is true."""
    assert gpu.launches is not None
    begun = gpu.launches.start
    rows = [
        at
        for at, (row, start) in enumerate(zip(gpu.launch, gpu.start, strict=True))
        if row >= 0 and start < begun[row] - _CLOCK_NS
    ]
    if not rows:
        return set()
    most = max(begun[gpu.launch[at]] - gpu.start[at] for at in rows)
    faults.append(
        f"{len(rows):,} of {len(gpu):,} device operations start before their own launch, by up to {duration(most)}: "
        "the clocks of host and device disagree, so that causes of idle time are unknown."
    )
    return {gpu.facts[gpu.fact[at]].device for at in rows}


def _without_operation(gpu: Ops, api: Calls, hidden: set[int], faults: list[str]) -> list[int]:
    """Launches whose records were dropped. Launches into a graph under capture run nothing, and a launch that another
    one makes inside itself is the same one.
    """
    assert gpu.launches is not None
    launching = [bool(_LAUNCH.match(fact.name)) for fact in api.facts]
    if not any(launching):
        return []
    has_work = bytearray(len(api))
    for at in gpu.launches.call:
        has_work[at] = 1
    for at in hidden:
        has_work[at] = 1
    rows = list(compress(range(len(api)), map(launching.__getitem__, api.fact)))
    if all(has_work[at] for at in rows):
        return []
    launches = _outermost(api, rows, has_work)
    lost = [at for at, worked in launches if not worked]
    if not lost:
        return []
    since = api.start[lost[0]]
    kinds = [fact.kind in ("kernel", "communication") for fact in gpu.facts]
    unjoined = zip(gpu.launch, gpu.start, gpu.fact, strict=True)
    if sum(1 for row, start, fact in unjoined if row < 0 and start >= since and kinds[fact]) >= len(lost):
        return []  # as many kernels have no launch: the file does not say which belong together
    which = "launches have" if len(lost) > 1 else "launches has"
    text = f"{len(lost):,} of {len(launches):,} {which} no kernel in this trace: busy time is a lower bound."
    faults.append(text)
    return lost


def _unrecorded(api: Calls, faults: list[str]) -> int:
    """Launches in a file without any device activity."""
    names = [fact.name for fact in api.facts]
    calls = [sum(times.values()) for times in api.durations()]
    launches = sum(many for name, many in zip(names, calls, strict=True) if _LAUNCH.match(name))
    graphs = sum(many for name, many in zip(names, calls, strict=True) if "GraphLaunch" in name)
    if launches:
        some = f", {graphs:,} of them of graphs" if graphs else ""
        times = "once" if launches == 1 else f"{launches:,} times"
        faults.append(f"The host launched {times}{some}, and no device activity was recorded.")
    return launches


def _outermost(api: Calls, rows: Sequence[int], has_work: bytearray) -> list[tuple[int, bool]]:
    """Launches outside of captures, and whether they, or a launch inside, have an operation."""
    captures = _captures(api)
    open_: dict[int, int] = {}  # thread → index in found
    found: list[tuple[int, bool]] = []
    for at in rows:
        fact = api.facts[api.fact[at]]
        if not api.number[at] or any(low <= api.start[at] < high for low, high in captures.get(fact.thread, ())):
            continue
        outer = open_.get(fact.thread)
        if outer is not None and api.start[at] < api.end[found[outer][0]]:
            found[outer] = (found[outer][0], found[outer][1] or bool(has_work[at]))
            continue
        open_[fact.thread] = len(found)
        found.append((at, bool(has_work[at])))
    return found


def _captures(api: Calls) -> dict[int, list[tuple[int, int]]]:
    """Times in which a thread recorded launches into a graph."""
    marks = [
        1 if "StreamBeginCapture" in fact.name else -1 if "StreamEndCapture" in fact.name else 0 for fact in api.facts
    ]
    captures: dict[int, list[tuple[int, int]]] = defaultdict(list)
    open_: dict[int, int] = {}
    for at in compress(range(len(api)), map(marks.__getitem__, api.fact)) if any(marks) else ():
        thread = api.facts[api.fact[at]].thread
        if marks[api.fact[at]] > 0:
            open_[thread] = api.start[at]
        else:
            captures[thread].append((open_.pop(thread, -_EVER if not captures[thread] else api.start[at]), api.end[at]))
    for thread, start in open_.items():
        captures[thread].append((start, _EVER))
    return captures


def _hidden(gpu: Ops, api: Calls, lost: Iterable[int]) -> dict[int, Cover]:
    """When the operations of these calls may have run: from the launch to the next operation of the stream, if the
    thread's launches before and after it went to one stream; else until the device was waited for.
    """
    assert gpu.launches is not None
    place: dict[int, tuple[int, int]] = {}
    for row, index in zip(gpu.launch, gpu.fact, strict=True):
        if row >= 0 and row not in place:
            place[row] = (gpu.facts[index].device, gpu.facts[index].stream)
    by_thread: dict[int, list[int]] = defaultdict(list)
    for row, call in enumerate(gpu.launches.call):
        by_thread[api.facts[api.fact[call]].thread].append(row)
    devices = {fact.device for fact in gpu.facts}
    drained = api.parted(lambda fact: fact.process if _DRAINS.match(fact.name) else None)
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for call in lost:
        fact, start = api.facts[api.fact[call]], api.start[call]
        rows = by_thread[fact.thread]
        at = bisect_left(rows, call, key=gpu.launches.call.__getitem__)
        around = {place[row] for row in rows[max(at - 1, 0) : at + 1]}
        if at < len(rows) and len(around) == 1:
            end = gpu.launches.first[rows[at]]
        else:
            waited = drained.get(fact.process)
            later = bisect_left(waited[0], start) if waited else 0
            end = waited[1][later] if waited and later < len(waited[1]) else _EVER
        for device in {device for device, _ in around} if len({d for d, _ in around}) == 1 else devices:
            spans[device].append((start, end))
    return {device: _cover(sorted(rows)) for device, rows in spans.items()}


def _cover(pairs: Iterable[tuple[int, int]]) -> Cover:
    rows = list(pairs)
    return Cover.of((start for start, _ in rows), (end for _, end in rows))
