"""The use of a window's time: one bar of shares per device, and lanes of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.server.charts.drawing import Drawing, Shape, box, line, words
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import short

BAR, LANE, LEGEND_ROW, LABEL_CHARS = 50.0, 44.0, 19.0, 44
WIDE_ENOUGH = 0.1  # larger shares are written into their part
# In the order of a bar, from work to waste: key of the figures, look, label.
PARTS = (
    ("compute", "compute", "compute"),
    ("exposed_communication", "communication", "communication that nothing hides"),
    ("exposed_copies", "copies", "copies that nothing hides"),
    ("idle_host", "idle-host", "idle: not launched yet"),
    ("idle_kernel", "idle-kernel", "idle between launched kernels"),
    ("idle_dependency", "idle-dependency", "idle: waiting for an event"),
    ("idle_other", "idle-other", "idle: launched, reason not recorded"),
    ("idle_unknown", "idle-unknown", "idle: launch not recorded"),
    ("idle_edge", "idle-edge", "idle before the first and after the last"),
)


@dataclass(frozen=True)
class TimelineBar:
    """One device: its window in seconds, and its shares by key of PARTS."""

    name: str
    seconds: float
    shares: dict[str, float]


@dataclass(frozen=True)
class TimelineSpan:
    """One interval, in seconds from the start of the window."""

    start: float
    end: float
    look: str
    text: str


@dataclass(frozen=True)
class TimelineLane:
    """Spans on the window's own time axis."""

    name: str
    spans: Sequence[TimelineSpan]


def draw(title: str, bars: Sequence[TimelineBar], lanes: Sequence[TimelineLane] = (), seconds: float = 0.0) -> Drawing:
    """Bars first, then lanes over a window of `seconds`, then the legend."""
    shapes: list[Shape] = []
    y = 0.0
    for bar in bars:
        shapes += _bar(bar, y)
        y += BAR
    for lane in lanes if seconds > 0 else ():
        shapes += _lane(lane, y, seconds)
        y += LANE
    if lanes and seconds > 0:
        y += 4
        shapes += [words("tick", 0, y + 10, "0 s"), words("tick", 100, y + 10, numbers.seconds(seconds), "end")]
        y += 18
    used = [part for part in PARTS if any(bar.shares.get(part[0], 0) > 0 for bar in bars)]
    for _, look, text in used:
        shapes += [box(look, 0, y + 5, 2, y + 16), words("soft", 2, y + 15, text, shift=8)]
        y += LEGEND_ROW
    return Drawing(title, _about(title, bars), y + 8, shapes, ("device", "window", *_heads(used)), _rows(bars, used))


def _about(title: str, bars: Sequence[TimelineBar]) -> str:
    sentences = []
    for bar in bars:
        parts = sorted(((bar.shares.get(key, 0.0), text) for key, _, text in PARTS), reverse=True)
        largest = ", ".join(f"{text} {numbers.percent(share)}" for share, text in parts[:3] if share > 0)
        sentences.append(f"{bar.name}: {largest} of {numbers.seconds(bar.seconds)}")
    return f"{title}. " + "; ".join(sentences) + "."


def _heads(used: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(key.replace("_", " ") for key, _, _ in used)


def _rows(bars: Sequence[TimelineBar], used: Sequence[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    return [
        (bar.name, numbers.seconds(bar.seconds), *(numbers.percent(bar.shares.get(key)) for key, _, _ in used))
        for bar in bars
    ]


def _bar(bar: TimelineBar, top: float) -> list[Shape]:
    shapes = [words("name", 0, top + 15, short(bar.name, LABEL_CHARS))]
    shapes.append(words("word", 100, top + 15, numbers.seconds(bar.seconds), "end"))
    left = 0.0
    for key, look, text in PARTS:
        share = min(bar.shares.get(key, 0.0), 1 - left)
        if share <= 0:
            continue
        tip = f"{bar.name}, {text}: {numbers.percent(share)}"
        shapes.append(box(f"part {look}", 100 * left, top + 22, 100 * (left + share), top + 44, tip))
        if share >= WIDE_ENOUGH:
            shapes.append(words(f"on {look}", 100 * left + 50 * share, top + 38, f"{100 * share:.0f} %", "middle"))
        left += share
    return shapes


def _lane(lane: TimelineLane, top: float, seconds: float) -> list[Shape]:
    shapes = [words("name", 0, top + 15, short(lane.name, LABEL_CHARS)), line("grid", 0, top + 32, 100, top + 32)]
    for span in lane.spans:
        left, right = (100 * min(max(at / seconds, 0.0), 1.0) for at in (span.start, span.end))
        shapes.append(box(f"part {span.look}", left, top + 22, right, top + 42, span.text))
    return shapes
