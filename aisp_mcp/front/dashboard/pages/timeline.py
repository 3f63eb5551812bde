"""A window of a stored trace as lanes of streams and threads; zoom and search are in the address."""

from __future__ import annotations

from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.front.dashboard import traces
from aisp_mcp.front.dashboard.pages.profiles import stored
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.profile.timeline import lanes
from aisp_mcp.server.text import numbers

MIN_WINDOW_NS = 1_000
NS = 1e-9


def build(request: PageRequest) -> dict[str, Any]:
    """?id= of the job, ?from= and ?to= in ns from the first event, ?find= text. Raises NotFound, UsageError."""
    profile = stored(request.ctx, request.word("id"))
    trace, (first, last) = traces.load_trace(profile.path, traces.changed_ns(profile.path))
    begin, end = _window(request, last - first)
    query = request.word("find").strip().lower()[:100]
    visible, more = lanes.lanes(trace, first + begin, first + end, query)
    hits = lanes.search(trace, query) if query else None
    title = f"{numbers.seconds((end - begin) * NS)} from {numbers.seconds(begin * NS)}"
    picture = traces.draw_lanes(title, visible, first + begin, first + end, first)
    return {
        "profile": profile,
        "lead": _lead(begin, end, last - first, hits, query),
        "begin": begin,
        "end": end,
        "whole": last - first,
        "query": query,
        "picture": picture,
        "more": more,
        "moves": _moves(begin, end, last - first),
        "hits": hits,
        "shown": [_hit(span, first, last - first) for span in hits.first] if hits else [],
    }


def _lead(begin: int, end: int, whole: int, hits: lanes.FoundEvents | None, query: str) -> str:
    """The content of the page: the search's answer, or the window."""
    if hits is not None:
        return f"{hits.events} events with “{query}”, {numbers.seconds(hits.duration_ns * NS)} in total."
    window = numbers.seconds((end - begin) * NS)
    return f"All {window}." if end - begin >= whole else f"{window} of {numbers.seconds(whole * NS)}."


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


def _hit(span: lanes.LaneSpan, first: int, whole: int) -> tuple[str, int, int]:
    """(label, begin, end) of a window around an event, in ns."""
    margin = max(span.end - span.start, MIN_WINDOW_NS)
    return traces.describe(span, first), max(span.start - first - margin, 0), min(span.end - first + margin, whole)
