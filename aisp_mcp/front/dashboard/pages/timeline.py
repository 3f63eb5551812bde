"""Part of a stored trace on its time axis: lanes of streams and threads, with zoom and search in the address."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.front.dashboard.pages.profiles import stored, subject
from aisp_mcp.profile import load
from aisp_mcp.profile.timeline import lanes
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.server.charts import timeline as chart
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.text import numbers

LOOKS = {
    "communication": "communication",
    "memcpy": "copies",
    "memset": "copies",
    "found": "found",
    "kernel": "compute",
}
LEAST_NS = 1_000
NS = 1e-9


def build(asked: Asked) -> dict[str, Any]:
    """?id= of the job, ?from= and ?to= in ns from the first event, ?find= words. Raises NotFound, UsageError."""
    found = stored(asked.ctx, asked.word("id"))
    trace, (first, last) = _trace(found.path, found.path.stat().st_mtime_ns)
    begin, end = _window(asked, last - first)
    words = asked.word("find").strip().lower()[:100]
    drawn, more = lanes.lanes(trace, first + begin, first + end, words)
    hits = lanes.search(trace, words) if words else None
    return {
        "found": found,
        "name": subject(found.job),
        "begin": begin,
        "end": end,
        "whole": last - first,
        "words": words,
        "drawing": _drawing(drawn, first, begin, end),
        "more": more,
        "moves": _moves(begin, end, last - first),
        "hits": hits,
        "shown": [_hit(one, first, last - first) for one in hits.first] if hits else [],
    }


@lru_cache(maxsize=2)
def _trace(path: Path, _changed_ns: int) -> tuple[Trace, tuple[int, int]]:
    """The events, and their bounds. Raises UsageError for a file that is no timeline."""
    trace = load.load_trace(path)
    return trace, lanes.bounds(trace)


def _window(asked: Asked, whole: int) -> tuple[int, int]:
    """(begin, end) in ns from the first event, inside the trace. Raises UsageError BAD_WINDOW."""
    try:
        begin, end = int(asked.word("from", "0")), int(asked.word("to") or whole)
    except ValueError as error:
        message = f"from={asked.word('from')[:40]}, to={asked.word('to')[:40]} are no nanoseconds."
        raise UsageError("BAD_WINDOW", message, "Both are whole numbers, counted from the first event.") from error
    begin = min(max(begin, 0), max(whole - LEAST_NS, 0))
    return begin, max(min(end, whole), begin + LEAST_NS)


def _moves(begin: int, end: int, whole: int) -> list[tuple[str, int, int]]:
    """(words, begin, end) of the windows that are one step away, in ns."""
    size = end - begin
    quarter, half = size // 4, size // 2
    wide = max(begin - half, 0), min(end + half, whole)
    steps = [("zoom in", begin + quarter, max(end - quarter, begin + quarter + LEAST_NS)), ("zoom out", *wide)]
    if begin > 0:
        back = min(half, begin)
        steps.append(("earlier", begin - back, end - back))
    if end < whole:
        on = min(half, whole - end)
        steps.append(("later", begin + on, end + on))
    return [*steps, ("all", 0, whole)]


def _drawing(found: list[lanes.Lane], first: int, begin: int, end: int) -> Drawing:
    rows = [
        chart.Lane(
            one.name + (f" ({one.left_out} within others)" if one.left_out else ""),
            [
                chart.Span(
                    (span.start - first - begin) * NS,
                    (span.end - first - begin) * NS,
                    LOOKS.get(span.kind, "busy"),
                    _said(span, first),
                )
                for span in one.spans
            ],
        )
        for one in found
    ]
    title = f"{numbers.seconds((end - begin) * NS)} from {numbers.seconds(begin * NS)}"
    return chart.draw(title, (), rows, (end - begin) * NS)


def _said(span: lanes.Span, first: int) -> str:
    lasted, at = numbers.seconds((span.end - span.start) * NS), numbers.seconds((span.start - first) * NS)
    return f"{span.name}: {lasted} at {at}" if span.events == 1 else f"{span.events} events in {lasted} at {at}"


def _hit(span: lanes.Span, first: int, whole: int) -> tuple[str, int, int]:
    """(words, begin, end) of a window around an event, in ns."""
    room = max(span.end - span.start, LEAST_NS)
    return _said(span, first), max(span.start - first - room, 0), min(span.end - first + room, whole)
