"""PyTorch's allocator history: timeline, peak with its stacks, growth per step, fragmentation.

JSON is read here. The pickle that PyTorch writes is read in a child, by an unpickler that allows no global.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from aisp_mcp.profile.readers.files import ProfileFile, bad, is_pickle, look
from aisp_mcp.profile.readers.kineto import load_json
from aisp_mcp.profile.readers.pickles import in_child
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import Allocation, MemoryProfile, Profile
from aisp_mcp.profile.timeline.steps import is_step

_POINTS = 200
_SHOWN = 10
_STACK = 8
_OPERATOR = re.compile(r"^at::_ops::\w+::call|^torch::autograd::\w*(?:Node|Backward)|^c10d::|Backward\d*::apply")
_SEGMENTS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_SIZED = {"alloc": 1, "free_completed": -1, "free": -1}


class AllocatorEvent(NamedTuple):
    """time in nanoseconds since the first event; change is 0 for events that do not change the memory in use,
    mapped is 0 for those that do not change the memory reserved.
    """

    time: int
    action: str
    address: int
    change: int
    frames: Any
    mapped: int = 0


def read(path: str | Path | ProfileFile) -> Profile:
    """A profile with one record per device that has events or segments. Raises UsageError BAD_PROFILE."""
    file = path if isinstance(path, ProfileFile) else look(path)
    if is_pickle(file.head):
        return Profile.model_validate_json(in_child(__name__, [file], "an allocator snapshot"))
    return profile(file, load_json(file))


def printed(pairs: Iterable[tuple[ProfileFile, Any]]) -> str:
    """The profile of one snapshot as JSON."""
    [(file, top)] = pairs
    return profile(file, top).model_dump_json()


def profile(file: ProfileFile, top: Any) -> Profile:
    """A profile from the file's content. Raises UsageError BAD_PROFILE."""
    traces = top.get("device_traces") if isinstance(top, dict) else None
    if not isinstance(traces, list):
        raise bad(f"{file.path.name!r} is not an allocator snapshot: it has no 'device_traces'.")
    segments = [s for s in _list(top.get("segments")) if isinstance(s, dict)]
    marks, end = _marks(top.get("external_annotations"))
    all_events, notes = [], []
    for device, raw in enumerate(traces[:64]):
        own_segments = [s for s in segments if s.get("device") == device]
        if raw or own_segments:
            events, origin = _events(raw)
            row = _device(device, events, own_segments, [m - origin for m in marks], end and end - origin)
            flags = _list(top.get("trace_alloc_overflowed"))
            all_events.append(row.model_copy(update={"overflowed": flags[device : device + 1] == [True]}))
    if not all_events:
        notes.append("Reader: the snapshot has neither events nor segments: was a history recorded?")
    return Profile(source=file.source("memory", "torch.cuda.memory", None), diagnostics=notes, memory=all_events)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _size(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**60 else 0


def _events(raw: Any) -> tuple[list[AllocatorEvent], int]:
    rows = [e for e in _list(raw) if isinstance(e, dict)]
    stamps = [_size(e.get("time_us")) for e in rows]
    origin = stamps[0] * 1000 if stamps else 0
    events = []
    for stamp, row in zip(stamps, rows, strict=True):
        action = str(row.get("action"))
        size = _size(row.get("size"))
        change, mapped = _SIZED.get(action, 0) * size, _SEGMENTS.get(action, 0) * size
        address, frames = _size(row.get("addr")), row.get("frames")
        events.append(AllocatorEvent(stamp * 1000 - origin, action, address, change, frames, mapped))
    return events, origin


def _marks(raw: Any) -> tuple[list[int], int | None]:
    """Starts of iterations, and the end of the last, in nanoseconds: annotations named like steps.

    If there are none, clearing the gradients marks an iteration, and the end of the last one is unknown.
    """
    rows = [row for row in _list(raw) if isinstance(row, dict)]
    named = [(str(row.get("stage")), str(row.get("name", "")), _size(row.get("time_us")) * 1000) for row in rows]
    starts = sorted({at for stage, name, at in named if stage == "START" and is_step(name)})
    if starts:
        ends = [at for stage, name, at in named if stage == "END" and is_step(name) and at > starts[-1]]
        return starts, max(ends, default=None)
    return sorted({at for stage, name, at in named if stage == "START" and "zero_grad" in name}), None


def _device(
    device: int, events: list[AllocatorEvent], segments: list[dict[str, Any]], marks: list[int], end: int | None
) -> MemoryProfile:
    held_at_end = sum(_size(s.get("allocated_size")) for s in segments)
    reserved = sum(_size(s.get("total_size")) for s in segments)
    active = sum(_size(s.get("active_size")) for s in segments)
    baseline = max(0, held_at_end - sum(e.change for e in events)) if segments else 0
    curve = list(_curve(events, baseline))
    at, peak = max(enumerate(curve), key=lambda item: item[1][1], default=(-1, (0, baseline)))
    at, peak = (-1, (0, baseline)) if baseline > peak[1] else (at, peak)  # the most was held before the history
    held = list(accumulate((e.mapped for e in events), initial=max(0, reserved - sum(e.mapped for e in events))))
    at_peak = min(held[at + 1], reserved)  # what empty_cache() gave back is not fragmentation
    actions = Counter(e.action for e in events)
    blocks = [b for s in segments for b in _list(s.get("blocks")) if isinstance(b, dict)]
    free = [_size(b.get("size")) for b in blocks if b.get("state") == "inactive"]
    return MemoryProfile(
        device=device,
        events=len(events),
        duration_ns=events[-1].time if events else 0,
        baseline_bytes=baseline,
        peak_bytes=peak[1],
        peak_at_ns=peak[0],
        end_bytes=curve[-1][1] if curve else baseline,
        reserved_bytes=reserved,
        peak_reserved_bytes=max(held),
        active_bytes=active,
        unused_at_peak=max(0.0, 1 - peak[1] / at_peak) if at_peak and events else 0.0,
        largest_free_bytes=max(free, default=0),
        at_peak=_held(events[: at + 1]),
        timeline=_thin(curve),
        growth=_growth(events, marks, end),
        steps_from="annotations in the history" if marks else None,
        allocations=actions["alloc"],
        segment_allocations=actions["segment_alloc"],
        segment_frees=actions["segment_free"],
        segment_flushes=_flushes(events),
        out_of_memory=actions["oom"],
    )


def _flushes(events: list[AllocatorEvent]) -> int:
    """Stretches of released segments with none allocated in between: one empty_cache() releases many at once."""
    calls = [e.action for e in events if e.action in ("segment_alloc", "segment_free")]
    return sum(action == "segment_free" and before != action for before, action in pairwise(["", *calls]))


def _curve(events: list[AllocatorEvent], baseline: int) -> Iterator[tuple[int, int]]:
    allocated = baseline
    for event in events:
        if event.change:
            allocated += event.change
        yield event.time, allocated


def _thin(curve: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most 200 points: the highest of each stretch, so that peaks survive."""
    if len(curve) <= _POINTS:
        return curve
    width = -(-len(curve) // _POINTS)
    return [max(curve[at : at + width], key=lambda point: point[1]) for at in range(0, len(curve), width)]


def _held(events: list[AllocatorEvent]) -> list[Allocation]:
    """Live allocations after these events, by stack, largest first."""
    alive: dict[int, AllocatorEvent] = {}
    for event in events:
        if event.change > 0:
            alive[event.address] = event
        elif event.change < 0:
            alive.pop(event.address, None)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for event in alive.values():
        groups[_stack(event.frames)].append(event.change)
    rows = [Allocation(bytes=sum(sizes), count=len(sizes), stack=list(stack)) for stack, sizes in groups.items()]
    return sorted(rows, key=lambda r: (-r.bytes, r.stack))[:_SHOWN]


def _stack(frames: Any) -> tuple[str, ...]:
    """The innermost Python frames, innermost first; frames of PyTorch's own C++ do not help a user.

    Allocations of autograd's threads have no Python frame: then the operators are used instead.
    """
    rows = [f for f in _list(frames) if isinstance(f, dict)]
    python = [f for f in rows if str(f.get("filename", "")).endswith(".py")]
    named = python or [f for f in rows if _OPERATOR.search(str(f.get("name", "")))] or rows[:1]
    return tuple(
        clean(f"{f.get('name', '?')} ({str(f.get('filename', '?')).rpartition('/')[2]}:{f.get('line', 0)})", 160)
        for f in named[:_STACK]
    )


def _growth(events: list[AllocatorEvent], marks: list[int], end: int | None) -> list[int]:
    """Per step: bytes allocated in it that are still held when the last one ends. Leaks repeat in every row.

    This does not use the end of the history, because memory held by a function's loop is freed when it returns.
    """
    if len(marks) < 2:
        return []
    last = end if end is not None else max(events[-1].time, marks[-1]) + 1
    alive: dict[int, AllocatorEvent] = {}
    for event in events:
        if event.time >= last:
            break
        if event.change > 0:
            alive[event.address] = event
        elif event.change < 0:
            alive.pop(event.address, None)
    changes = sorted((e.time, e.change) for e in alive.values())
    return [sum(size for time, size in changes if low <= time < high) for low, high in pairwise([*marks, last])][:1000]
