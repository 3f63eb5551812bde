"""Points with their intervals on two axes: Pareto fronts, trade-offs, fits, and values over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aisp_mcp.server.charts.drawing import Drawing, Shape, box, dot, line, words
from aisp_mcp.server.text.escape import short

TOP, BOTTOM, FOOT, LEFT, RIGHT = 16.0, 280.0, 40.0, 12.0, 97.0
CHAR, GAP = (
    2.05,
    2.5,
)  # per cent of the minimum width, 360 pixels: a character of a tick's label, and the space next to it
LABEL_CHAR, LABEL_RISE, LABEL_CHARS = 0.95, 10.0, 34  # per cent of 750 pixels, the minimum width with labels
STEPS = (1.0, 2.0, 5.0)
X_TICKS, Y_TICKS = 6, 7

Say = Callable[[float], str]
Position = Callable[[float], float]


@dataclass(frozen=True)
class Scale:
    """One axis: its quantity, its number format, whether it is logarithmic, and the distance of its ticks.

    steps: allowed distances of ticks, ascending; none: 1, 2 or 5 times powers of ten. whole: ticks at whole numbers.
    around: range on each side of a single value; 0: 5 % of it.
    """

    title: str
    say: Say
    log: bool = False
    steps: Sequence[float] = ()
    whole: bool = False
    around: float = 0.0


@dataclass(frozen=True)
class Spot:
    """One point; the ends of an interval are None if unknown. look: a class of chart.css.

    label: text above the point, if it fits.
    """

    x: float
    y: float
    look: str
    text: str
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    label: str = ""


@dataclass(frozen=True)
class Curve:
    """Values joined by straight lines."""

    look: str
    points: Sequence[tuple[float, float]]
    text: str = ""


@dataclass(frozen=True)
class IntervalBand:
    """A range of y, from one x to another."""

    x: tuple[float, float]
    y: tuple[float, float]
    text: str = ""


def draw(
    title: str,
    axes: tuple[Scale, Scale],
    spots: Sequence[Spot],
    paths: Sequence[Curve] = (),
    bands: Sequence[IntervalBand] = (),
) -> Drawing:
    """Draw at least one spot. On a logarithmic axis, values that are not positive are at its lower end."""
    across, down = axes
    xs = [x for spot in spots for x in (spot.x, *(spot.x_ends or ()))] + [x for path in paths for x, _ in path.points]
    ys = [y for spot in spots for y in (spot.y, *(spot.y_ends or ()))] + [y for path in paths for _, y in path.points]
    ys += [y for band in bands for y in band.y]
    at_y, y_ticks = _axis(down, ys, (BOTTOM, TOP), Y_TICKS)
    left = max([LEFT, *(CHAR * len(down.say(tick)) + GAP for tick in y_ticks)])
    at_x, x_ticks = _axis(across, xs, (left, RIGHT), X_TICKS)
    shapes = [*_grid(axes, (at_x, x_ticks), (at_y, y_ticks), left)]
    shapes += [box("floor", at_x(b.x[0]), at_y(max(b.y)), at_x(b.x[1]), at_y(min(b.y)), b.text) for b in bands]
    for path in paths:
        ends = zip(path.points, path.points[1:], strict=False)
        shapes += [line(path.look, at_x(a), at_y(b), at_x(c), at_y(d), path.text) for (a, b), (c, d) in ends]
    for spot in spots:
        shapes += _spot(spot, at_x, at_y)
    title_end = left + LABEL_CHAR * len(down.title)
    labels = [(at_x(spot.x), _label_height(spot, at_x, at_y, title_end), spot.label) for spot in spots if spot.label]
    shapes += _labels(labels, left)
    about = f"{title}: {len(spots)} points, {down.title} over {across.title}."
    rows = [(spot.text, across.say(spot.x), down.say(spot.y), _ends(spot, axes)) for spot in spots]
    return Drawing(title, about, BOTTOM + FOOT, shapes, ("point", across.title, down.title, "interval"), rows)


def _label_height(spot: Spot, at_x: Position, at_y: Position, title_end: float) -> float:
    """Above the point and its interval, or below, where it would cover the title of the axis."""
    ends = [at_y(value) for value in (spot.y, *(spot.y_ends or ()))]
    above = min(ends) - LABEL_RISE
    start = at_x(spot.x) - LABEL_CHAR * min(len(spot.label), LABEL_CHARS) / 2
    return max(ends) + 2 * LABEL_RISE if above < TOP + LABEL_RISE and start < title_end else above


def _labels(labels: Sequence[tuple[float, float, str]], left: float) -> list[Shape]:
    """The labels that cover no earlier one, right of the axis; a narrow page shows none (see chart.css)."""
    placed: list[tuple[float, float, float]] = []
    shapes = []
    for at, y, text in labels:
        brief = short(text, LABEL_CHARS)
        wide = LABEL_CHAR * len(brief)
        start = min(max(at - wide / 2, left), 100 - wide)
        end = start + wide
        if all(abs(y - other) >= 15 or end <= a or start >= b for a, b, other in placed):
            placed.append((start, end, y))
            shapes.append(words("label", start, y, brief))
    return shapes


def _ends(spot: Spot, axes: tuple[Scale, Scale]) -> str:
    texts = [
        f"{axis.say(ends[0])} to {axis.say(ends[1])}"
        for axis, ends in zip(axes, (spot.x_ends, spot.y_ends), strict=True)
        if ends
    ]
    return "; ".join(texts) or "–"


def _spot(spot: Spot, at_x: Position, at_y: Position) -> list[Shape]:
    x, y = at_x(spot.x), at_y(spot.y)
    shapes = []
    if spot.x_ends:
        shapes.append(line(f"span {spot.look}", at_x(spot.x_ends[0]), y, at_x(spot.x_ends[1]), y, spot.text))
    if spot.y_ends:
        shapes.append(line(f"span {spot.look}", x, at_y(spot.y_ends[0]), x, at_y(spot.y_ends[1]), spot.text))
    return [*shapes, dot(f"spot {spot.look}", x, y, spot.text, 5)]


def _grid(
    axes: tuple[Scale, Scale], x: tuple[Position, Sequence[float]], y: tuple[Position, Sequence[float]], left: float
) -> list[Shape]:
    shapes: list[Shape] = []
    free = 0.0  # right of the labels so far, on a narrow screen
    for value in x[1]:
        at, half = x[0](value), CHAR * len(axes[0].say(value)) / 2
        shapes.append(line("grid", at, TOP, at, BOTTOM))
        if at + half <= 100:  # or a narrow screen would clip it
            fits = at - half >= free
            free = at + half if fits else free
            shapes.append(words("tick" if fits else "tick roomy", at, BOTTOM + 16, axes[0].say(value), "middle"))
    for value in y[1]:
        at = y[0](value)
        shapes += [line("grid", left, at, RIGHT, at), words("tick", left, at + 4, axes[1].say(value), "end", -6)]
    shapes.append(words("tick", RIGHT, BOTTOM + 34, axes[0].title, "end"))
    return [*shapes, words("tick", left, TOP - 4, axes[1].title)]


def _axis(scale: Scale, values: Sequence[float], ends: tuple[float, float], most: int) -> tuple[Position, list[float]]:
    """The function from a value to its position, and the round values to mark."""
    real = [value for value in values if math.isfinite(value) and (value > 0 or not scale.log)] or [1.0]
    logs = [math.log(value) if scale.log else value for value in real]
    low, high = min(logs), max(logs)
    air = 0.06 * (high - low) or (0.1 if scale.log else scale.around or abs(high) * 0.05 or 1.0)
    low, high = low - air, high + air

    def position(value: float) -> float:
        if scale.log:
            value = math.log(value) if value > 0 else low
        inside = min(max(value, low), high)
        return ends[0] + (inside - low) / (high - low) * (ends[1] - ends[0])

    ticks = _log_ticks(low, high, most) if scale.log else _ticks(low, high, most, scale.steps)
    return position, [tick for tick in ticks if not scale.whole or tick == round(tick)]


def _ticks(low: float, high: float, most: int, steps: Sequence[float] = ()) -> list[float]:
    """Multiples of one step."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    known = steps if steps and rough >= steps[0] else ()
    step = next((step for step in (*known, *(factor * power for factor in STEPS)) if step >= rough), 10 * power)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times powers of ten; only powers if those are too many; round values within less than a decade."""
    powers = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
    for factors in (STEPS, STEPS[:1]):
        candidates = [factor * 10.0**power for power in powers for factor in factors]
        inside = [value for value in candidates if low <= math.log(value) <= high]
        if 2 <= len(inside) <= most:
            return inside
    if len(inside) > most:
        return inside[:: math.ceil(len(inside) / most)]
    return [value for value in _ticks(math.exp(low), math.exp(high), most) if value > 0]
