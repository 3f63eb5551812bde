"""The roofline: rate over arithmetic intensity, both logarithmic, with one roof per kind of arithmetic.

The picture numbers its points and names them below it, so that long names and close points stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.server.charts.drawing import Drawing, LogAxis, Shape, decades, dot, line, log, words
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import short

TOP, BOTTOM, FOOT, LEGEND_ROW = 28.0, 350.0, 46.0, 18.0
LABEL_GAP, NEAR, LABEL_CHARS, COLORS = 15.0, 2.0, 44, 7
AIR = math.log(2)


@dataclass(frozen=True)
class Roof:
    """The maximum FLOP/s of one kind of arithmetic."""

    name: str
    flop_per_s: float


@dataclass(frozen=True)
class RooflinePoint:
    """One operation: FLOP per byte, FLOP/s, and its share of the roof above it."""

    name: str
    intensity: float
    flop_per_s: float
    share: float | None
    bound: str


def draw(title: str, bandwidth: float, roofs: Sequence[Roof], points: Sequence[RooflinePoint]) -> Drawing:
    """bandwidth: bytes/s. Expects at least one roof; everything positive and finite."""
    x, y = _axes(bandwidth, roofs, points)
    shapes = [*_grid(x, y), *_roofs(x, y, bandwidth, roofs)]
    shapes += _points(x, y, points)
    top = BOTTOM + FOOT
    for number, point in enumerate(points, 1):
        text = f"{number}: {_brief(point)}, {short(point.name, LABEL_CHARS)}"
        shapes.append(words("soft", 0, top + LEGEND_ROW * number, text))
    height = top + LEGEND_ROW * len(points) + (10 if points else 0)
    under = sum(point.bound == "memory" for point in points)
    peaks = ", ".join(f"{roof.name} {numbers.rate(roof.flop_per_s, 'FLOP/s')}" for roof in roofs)
    about = f"{title}. Memory {numbers.rate(bandwidth, 'B/s')}; {peaks}. "
    about += f"{len(points)} operations, {under} of them under the memory roof."
    return Drawing(title, about, height, shapes, _COLUMNS, [_cells(n, point) for n, point in enumerate(points, 1)])


_COLUMNS = ("#", "operation", "FLOP per byte", "rate", "of the roof", "bound by")


def _cells(number: int, point: RooflinePoint) -> tuple[str, ...]:
    share = numbers.percent(point.share)
    return (
        str(number),
        point.name,
        f"{point.intensity:.3g}",
        numbers.rate(point.flop_per_s, "FLOP/s"),
        share,
        point.bound,
    )


def _brief(point: RooflinePoint) -> str:
    share = "" if point.share is None else f", {numbers.percent(point.share)} of the roof"
    return numbers.rate(point.flop_per_s, "FLOP/s") + share


def _say(point: RooflinePoint) -> str:
    return f"{point.name}: {_brief(point)}, {point.intensity:.3g} FLOP per byte"


def _axes(bandwidth: float, roofs: Sequence[Roof], points: Sequence[RooflinePoint]) -> tuple[LogAxis, LogAxis]:
    """Intensity in per cent of the width, rate in pixels from the bottom; every point and ridge is inside."""
    ridges = [math.log(roof.flop_per_s / bandwidth) for roof in roofs]
    left, right = decades([*ridges, *(math.log(point.intensity) for point in points)])
    rates = [math.log(point.flop_per_s) - AIR for point in points] + [math.log(bandwidth) + left]
    low, high = decades([*rates, *(math.log(roof.flop_per_s) + AIR for roof in roofs)])
    return LogAxis(left - AIR, right + 2 * AIR, 0, 100), LogAxis(low, high, BOTTOM, TOP)


def _grid(x: LogAxis, y: LogAxis) -> list[Shape]:
    shapes: list[Shape] = []
    for value in x.ticks(_powers(x), 12):
        at = x.position(math.log(value))
        shapes += [line("grid", at, TOP, at, BOTTOM), words("tick", at, BOTTOM + 17, f"{value:g}", "middle")]
    marks = y.ticks(_powers(y), 26)
    for value in marks:
        at, unit = y.position(math.log(value)), "FLOP/s" if value == marks[-1] else ""
        shapes += [line("grid", 0, at, 100, at), words("tick", 0, at - 4, numbers.rate(value, unit).rstrip())]
    return [*shapes, words("tick", 50, BOTTOM + 36, "arithmetic intensity, FLOP per byte", "middle")]


def _powers(axis: LogAxis) -> list[float]:
    ten = math.log(10)
    return [10.0**power for power in range(math.ceil(axis.low / ten), math.floor(axis.high / ten) + 1)]


def _points(x: LogAxis, y: LogAxis, points: Sequence[RooflinePoint]) -> list[Shape]:
    """A dot each; overlapping points share a label."""
    shapes: list[Shape] = []
    labels: list[tuple[float, float, list[str]]] = []
    for number, point in enumerate(points, 1):
        at, up = x.position(math.log(point.intensity)), y.position(math.log(point.flop_per_s))
        shapes.append(dot("spot c6", at, up, _say(point), 5))
        near = next((names for left, top, names in labels if abs(left - at) < NEAR and abs(top - up) < LABEL_GAP), None)
        if near is None:
            labels.append((at, up, [str(number)]))
        else:
            near.append(str(number))
    return shapes + [words("", at, up + 17, ", ".join(names), "middle") for at, up, names in labels]


def _roofs(x: LogAxis, y: LogAxis, bandwidth: float, roofs: Sequence[Roof]) -> list[Shape]:
    """The memory roof up to the highest ridge, then one flat roof each; all text after all lines."""
    ordered = sorted(roofs, key=lambda roof: -roof.flop_per_s)
    start = max(x.low, y.low - math.log(bandwidth))
    top = math.log(ordered[0].flop_per_s / bandwidth)
    low = y.position(math.log(bandwidth) + start)
    lines = [line("roof c6", x.position(start), low, x.position(top), y.position(math.log(bandwidth) + top))]
    middle = (start + top) / 2  # nothing else is drawn above the roof
    text = f"memory {numbers.rate(bandwidth, 'B/s')}"
    labels = [words("word c6", x.position(middle), y.position(math.log(bandwidth) + middle) - 6, text, "end")]
    heights = [y.position(math.log(roof.flop_per_s)) for roof in ordered]
    for number, (roof, at, up) in enumerate(zip(ordered, heights, _apart(heights), strict=True)):
        ridge, look = roof.flop_per_s / bandwidth, f"c{number % (COLORS - 1)}"
        text = f"{short(roof.name, 20)} {numbers.rate(roof.flop_per_s, 'FLOP/s')}"
        tip = f"{text}, ridge at {ridge:.3g} FLOP per byte"
        lines.append(line(f"roof {look}", x.position(math.log(ridge)), at, 100, at, tip))
        labels.append(words(f"word {look}", 100, up, text, "end"))
    return [*lines, *labels]


def _apart(heights: Sequence[float]) -> list[float]:
    """Positions of labels: just above their roofs (given from the top down), moved up to be readable, never off the
    chart.
    """
    labels: list[float] = []
    free = math.inf
    for at in reversed(heights):
        free = min(at - 5, free - LABEL_GAP)
        labels.insert(0, free)
    return [max(label, LABEL_GAP * (number + 1)) for number, label in enumerate(labels)]


def usable(value: object) -> float | None:
    """A finite positive number, or None."""
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return number if log(number) is not None else None
