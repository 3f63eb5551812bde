"""A window of a timeline as lanes: one per device stream and host thread, with short neighbours merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aisp_mcp.profile.timeline.events import HostCall, HostRange
from aisp_mcp.profile.timeline.trace import Trace

RESOLUTION = 360  # spans shorter than this share of the window are merged with their neighbours
MOST_LANES, MOST_HITS = 16, 20


class _Key(NamedTuple):
    """Sort key of a lane: devices before the host, then device or thread, then stream or kind."""

    host: bool
    first: int
    second: int
    name: str


class LaneSpan(NamedTuple):
    """One interval, in nanoseconds. events: number of merged events."""

    start: int
    end: int
    name: str
    kind: str
    events: int = 1


@dataclass(frozen=True)
class TimelineLane:
    """Spans in order, without overlap. left_out: events of the window that are inside others."""

    name: str
    spans: Sequence[LaneSpan]
    left_out: int = 0


@dataclass(frozen=True)
class FoundEvents:
    """Events whose name contains the search words: number, their time in ns, the first of them."""

    events: int
    duration_ns: int
    first: Sequence[LaneSpan]


def bounds(trace: Trace) -> tuple[int, int]:
    """First begin and last end of all events, in nanoseconds; (0, 0) for a trace without any."""
    events = [span for _, span in _all(trace)]
    return (min(event.start for event in events), max(event.end for event in events)) if events else (0, 0)


def lanes(
    trace: Trace, begin: int, end: int, words: str = "", resolution: int = RESOLUTION
) -> tuple[list[TimelineLane], int]:
    """Lanes with events in [begin, end) ns, devices first, and how many more there are. words: as in search()."""
    rows: dict[_Key, list[LaneSpan]] = defaultdict(list)
    for lane, span in _all(trace):
        if span.end >= begin and span.start < end:
            rows[lane].append(span._replace(kind="found") if words and words in span.name.lower() else span)
    least = max((end - begin) // resolution, 1)
    shown = sorted(rows)[:MOST_LANES]
    return [_lane(key.name, sorted(rows[key]), least) for key in shown], len(rows) - len(shown)


def search(trace: Trace, words: str) -> FoundEvents:
    """All events of the trace whose name contains the words, in small letters."""
    hits = sorted(span for _, span in _all(trace) if words in span.name.lower())
    return FoundEvents(len(hits), sum(hit.end - hit.start for hit in hits), hits[:MOST_HITS])


def _all(trace: Trace) -> Iterable[tuple[_Key, LaneSpan]]:
    for op in trace.gpu:
        key = _Key(False, op.device, op.stream, f"GPU {op.device}, stream {op.stream}")
        yield key, LaneSpan(op.start, op.end, op.name, op.kind)
    threads: dict[int, int] = {}
    kinds: dict[str, Sequence[HostCall | HostRange]]
    kinds = {"range": trace.ranges, "operator": trace.operators, "call": trace.api}
    for index, (kind, calls) in enumerate(kinds.items()):
        for call in calls:
            number = threads.setdefault(call.thread, len(threads) + 1)
            yield (
                _Key(True, number, index, f"thread {number}, {kind}s"),
                LaneSpan(call.start, call.end, call.name, kind),
            )


def _lane(name: str, spans: Sequence[LaneSpan], least: int) -> TimelineLane:
    """Outermost events; those shorter than `least` ns are merged with neighbours that are nearer than that."""
    drawn: list[LaneSpan] = []
    inner = 0
    for span in spans:
        last = drawn[-1] if drawn else None
        if last and last.end - last.start >= least and span.start < last.end:
            inner += 1
        elif last and span.start - last.end < least and max(last.end - last.start, span.end - span.start) < least:
            kind = "found" if "found" in (last.kind, span.kind) else last.kind
            longer = max((last, span), key=lambda candidate: candidate.end - candidate.start)
            drawn[-1] = LaneSpan(last.start, max(last.end, span.end), longer.name, kind, last.events + 1)
        else:
            drawn.append(span)
    return TimelineLane(name, drawn, inner)
