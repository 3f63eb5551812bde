"""Pictures of a trace: its timeline, its flame graph, and the difference of two, coloured by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aisp_mcp.errors import AispError
from aisp_mcp.front.dashboard.pages.profiles import stored
from aisp_mcp.profile import load
from aisp_mcp.profile.pictures import flame, flame_page, kinds
from aisp_mcp.profile.readers.text import shorten
from aisp_mcp.profile.timeline import lanes
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.server.charts import bars
from aisp_mcp.server.charts import timeline as chart
from aisp_mcp.server.charts.bars import Cell
from aisp_mcp.server.charts.drawing import Drawing
from aisp_mcp.server.context import Context
from aisp_mcp.server.text import numbers

NS = 1e-9
MAX_BOXES, MAX_DEPTH, MIN_SHARE, MAX_NAME = 220, 24, 0.002, 90
MAX_SPANS, RESOLUTIONS = 320, (160, 80, 40, 20)
_HOST = {"operator": "operator", "call": "call", "range": "range"}
Legend = list[tuple[str, str]]


@dataclass(frozen=True)
class Picture:
    """A drawing with the kinds that its colours stand for."""

    drawing: Drawing
    legend: Legend


@lru_cache(maxsize=4)
def load_trace(path: Path, _changed_ns: int) -> tuple[Trace, tuple[int, int]]:
    """Load the events and their bounds; cached until the file changes. Raises UsageError if it is not a timeline."""
    trace = load.load_trace(path)
    return trace, lanes.bounds(trace)


def changed_ns(path: Path) -> int:
    """Modification time of a file: part of the key of cached results about it."""
    return path.stat().st_mtime_ns


def kind_of(span: lanes.LaneSpan) -> str:
    """The kind of a span of a timeline, as in kinds.WORDS; found: it matches the search."""
    if span.kind == "found":
        return "found"
    if span.kind in _HOST:
        return _HOST[span.kind]
    return "communication" if span.kind == "communication" else kinds.of_device(span.name)


def describe(span: lanes.LaneSpan, first: int) -> str:
    duration, start = numbers.seconds((span.end - span.start) * NS), numbers.seconds((span.start - first) * NS)
    name = shorten(span.name, MAX_NAME)
    return f"{name}: {duration} at {start}" if span.events == 1 else f"{span.events} events in {duration} at {start}"


def draw_lanes(title: str, visible: Sequence[lanes.TimelineLane], begin: int, end: int, first: int) -> Picture:
    """Lanes from begin to end, in ns of the trace's clock; first: origin of the displayed times."""
    rows = []
    for lane in visible:
        spans = [
            chart.TimelineSpan(
                (span.start - begin) * NS, (span.end - begin) * NS, f"k-{kind_of(span)}", describe(span, first)
            )
            for span in lane.spans
        ]
        rows.append(
            chart.TimelineLane(lane.name + (f" ({lane.left_out} within others)" if lane.left_out else ""), spans)
        )
    used = {kind_of(span) for lane in visible for span in lane.spans}
    return Picture(chart.draw(title, (), rows, (end - begin) * NS), kinds.legend(used))


@lru_cache(maxsize=16)
def timeline(path: Path, changed: int) -> Picture | None:
    """The whole trace in few spans; None for one without events."""
    trace, (first, last) = load_trace(path, changed)
    if last <= first:
        return None
    for resolution in RESOLUTIONS:
        visible, _ = lanes.lanes(trace, first, last, "", resolution)
        if sum(len(lane.spans) for lane in visible) <= MAX_SPANS:
            break
    return draw_lanes("Timeline", visible[:8], first, last, first)


@lru_cache(maxsize=16)
def flame_graph(path: Path, _changed_ns: int) -> Picture | None:
    """The widest boxes of a profile's stacks; None for a profile without stacks."""
    try:
        stacks, unit = flame.stacks(path)
    except AispError:
        return None
    root = flame_page.build(stacks)
    return _boxes("Flame graph", root, unit, False, lambda box: f"k-{kinds.of_frame(box.stack)}")


def difference(ctx: Context, before: str, after: str) -> Drawing | None:
    """Widths of the later profile, colours by the change; None for profiles that cannot be compared."""
    paths = [stored(ctx, reference).path for reference in (before, after)]
    return _difference(*paths, *map(changed_ns, paths))


@lru_cache(maxsize=16)
def _difference(before: Path, after: Path, *_changed_ns: int) -> Drawing | None:
    try:
        earlier, later = flame.pair(before, after)
    except AispError:
        return None
    root = flame_page.build(later.stacks, earlier.stacks)
    title = f"Difference of the flame graphs{f' per {later.per}' if later.per else ''}"
    return _boxes(title, root, later.unit, True, lambda box: bars.change_style(box.node.change)).drawing


def _boxes(
    title: str, root: flame_page.FrameNode, unit: str, against: bool, style: Callable[[flame_page.Box], str]
) -> Picture:
    shown = flame_page.widest(root, MAX_BOXES, MAX_DEPTH, MIN_SHARE)
    cells = [
        Cell(
            box.depth,
            box.left,
            box.width,
            shorten(box.stack[-1], MAX_NAME),
            style(box),
            flame_page.describe(box.node, unit, root.b, against),
        )
        for box in shown
    ]
    used = () if against else (kinds.of_frame(box.stack) for box in shown)
    return Picture(bars.draw_boxes(title, cells), kinds.legend(used))
