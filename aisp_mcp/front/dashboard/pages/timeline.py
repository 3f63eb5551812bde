"""A window of a stored trace as lanes of streams and threads; zoom and search are in the address."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.front.dashboard.pages.profiles import stored, subject
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.profile import load
from aisp_mcp.profile.timeline import lanes
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.server.charts import timeline as chart
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.text import numbers

STYLES = {
    "communication": "communication",
    "memcpy": "copies",
    "memset": "copies",
    "found": "found",
    "kernel": "compute",
}
MIN_WINDOW_NS = 1_000
NS = 1e-9


def build(request: PageRequest) -> dict[str, Any]:
    """?id= of the job, ?from= and ?to= in ns from the first event, ?find= text. Raises NotFound, UsageError."""
    profile = stored(request.ctx, request.word("id"))
    trace, (first, last) = _trace(profile.path, profile.path.stat().st_mtime_ns)
    begin, end = _window(request, last - first)
    query = request.word("find").strip().lower()[:100]
    visible, more = lanes.lanes(trace, first + begin, first + end, query)
    hits = lanes.search(trace, query) if query else None
    return {
        "profile": profile,
        "name": subject(profile.job),
        "begin": begin,
        "end": end,
        "whole": last - first,
        "query": query,
        "drawing": _drawing(visible, first, begin, end),
        "more": more,
        "moves": _moves(begin, end, last - first),
        "hits": hits,
        "shown": [_hit(span, first, last - first) for span in hits.first] if hits else [],
    }


@lru_cache(maxsize=2)
def _trace(path: Path, _changed_ns: int) -> tuple[Trace, tuple[int, int]]:
    """Load the events and their bounds; cached until the file changes. Raises UsageError if it is not a timeline."""
    trace = load.load_trace(path)
    return trace, lanes.bounds(trace)


def _window(request: PageRequest, whole: int) -> tuple[int, int]:
    """(begin, end) in ns from the first event, inside the trace. Raises UsageError BAD_WINDOW."""
    try:
        begin, end = int(request.word("from", "0")), int(request.word("to") or whole)
    except ValueError as error:
        message = f"from={request.word('from')[:40]}, to={request.word('to')[:40]} are not nanoseconds."
        raise UsageError("BAD_WINDOW", message, "Both are whole numbers of ns from the first event.") from error
    begin = min(max(begin, 0), max(whole - MIN_WINDOW_NS, 0))
    return begin, max(min(end, whole), begin + MIN_WINDOW_NS)


def _moves(begin: int, end: int, whole: int) -> list[tuple[str, int, int]]:
    """(label, begin, end) of the windows one step away, in ns."""
    size = end - begin
    quarter, half = size // 4, size // 2
    wider = max(begin - half, 0), min(end + half, whole)
    steps = [("zoom in", begin + quarter, max(end - quarter, begin + quarter + MIN_WINDOW_NS)), ("zoom out", *wider)]
    if begin > 0:
        back = min(half, begin)
        steps.append(("earlier", begin - back, end - back))
    if end < whole:
        forward = min(half, whole - end)
        steps.append(("later", begin + forward, end + forward))
    return [*steps, ("all", 0, whole)]


def _drawing(visible: list[lanes.Lane], first: int, begin: int, end: int) -> Drawing:
    rows = [
        chart.Lane(
            lane.name + (f" ({lane.left_out} within others)" if lane.left_out else ""),
            [
                chart.Span(
                    (span.start - first - begin) * NS,
                    (span.end - first - begin) * NS,
                    STYLES.get(span.kind, "busy"),
                    _describe(span, first),
                )
                for span in lane.spans
            ],
        )
        for lane in visible
    ]
    title = f"{numbers.seconds((end - begin) * NS)} from {numbers.seconds(begin * NS)}"
    return chart.draw(title, (), rows, (end - begin) * NS)


def _describe(span: lanes.Span, first: int) -> str:
    duration, start = numbers.seconds((span.end - span.start) * NS), numbers.seconds((span.start - first) * NS)
    return (
        f"{span.name}: {duration} at {start}" if span.events == 1 else f"{span.events} events in {duration} at {start}"
    )


def _hit(span: lanes.Span, first: int, whole: int) -> tuple[str, int, int]:
    """(label, begin, end) of a window around an event, in ns."""
    margin = max(span.end - span.start, MIN_WINDOW_NS)
    return _describe(span, first), max(span.start - first - margin, 0), min(span.end - first + margin, whole)
