"""Geometry of the ratio chart: a pure function from comparisons to coordinates; the template draws it.

One row per comparison on a common logarithmic axis: a dot for the ratio, a bar for its interval, a band around 1 as
wide as the run's own noise floor. What has no ratio says so in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.export import numbers
from aisp_mcp.model.verdict import Comparison

LEFT, RIGHT, TOP, ROW, WIDTH = 250.0, 150.0, 34.0, 34.0, 940.0
LEAST_SPAN = math.log(1.1)  # a chart of equals must not blow their noise up to the full width
WIDEST = math.log(1e4)  # beyond this the axis ends; values outside are marked as such
LABEL_CHARS = 34
_TICKS = (  # the more important first
    *(1.0, 2.0, 0.5, 10.0, 0.1, 100.0, 0.01, 5.0, 0.2, 1e3, 1e-3, 1e4, 1e-4, 1.5, 0.7, 1.2, 0.8, 1.1, 0.9, 1.05, 0.95),
    *(20.0, 0.05, 3.0, 0.3, 50.0, 0.02, 1.02, 0.98),
)
_TICK_GAP = 46.0


@dataclass(frozen=True)
class Mark:
    """One row. x positions are None where there is no number; beyond says that a value lies outside the axis."""

    y: float
    label: str
    full: str
    verdict: str
    text: str
    dot: float | None = None
    low: float | None = None
    high: float | None = None
    floor: tuple[float, float] | None = None
    beyond: bool = False


@dataclass(frozen=True)
class Chart:
    """Everything the template needs, in SVG user units."""

    width: float
    height: float
    bottom: float
    one: float
    ticks: list[tuple[float, str]]
    marks: list[Mark]


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis between two ends in log units."""

    low: float
    high: float

    @property
    def scale(self) -> float:
        return (WIDTH - LEFT - RIGHT) / (self.high - self.low)

    def place(self, log_value: float) -> float:
        """x of a value; values outside are put on the end."""
        inside = min(max(log_value, self.low), self.high)
        return round(LEFT + (inside - self.low) * self.scale, 2)

    def holds(self, log_value: float) -> bool:
        return self.low <= log_value <= self.high


def ratio_chart(comparisons: Sequence[Comparison]) -> Chart:
    """Lay the comparisons out, in their order."""
    axis = _Axis(*_range(comparisons))
    bottom = TOP + ROW * len(comparisons)
    marks = [_mark(one, TOP + ROW * (index + 0.5), axis) for index, one in enumerate(comparisons)]
    ticks = [(axis.place(math.log(tick)), f"{tick:g}×") for tick in _ticks(axis)]
    return Chart(WIDTH, bottom + 34.0, bottom, axis.place(0.0), ticks, marks)


def _mark(one: Comparison, y: float, axis: _Axis) -> Mark:
    name = one.target + (f" {one.candidate}" if one.candidate else "")
    value = _log(one.ratio)
    if value is None:
        return Mark(y, _short(name), name, one.verdict.value, f"{one.verdict.value}, no ratio")
    low, high = _ends(one, value)
    floor = _floor(one)
    return Mark(
        y,
        _short(name),
        name,
        one.verdict.value,
        f"{numbers.ratio(one.ratio)} {one.verdict.value}",
        dot=axis.place(value),
        low=axis.place(low),
        high=axis.place(high),
        floor=None if floor is None else (axis.place(-floor), axis.place(floor)),
        beyond=not all(axis.holds(v) for v in (low, value, high)),
    )


def _ends(one: Comparison, value: float) -> tuple[float, float]:
    """The interval in log units; an end that is not a positive number is infinitely far away."""
    if one.interval is None:
        return value, value
    low, high = _log(one.interval.low), _log(one.interval.high)
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _range(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """Axis ends in log units: all numbers and 1, with some air."""
    logs = [0.0]
    for one in comparisons:
        ends = (one.interval.low, one.interval.high) if one.interval else ()
        floor = _floor(one)
        values = [*(_log(value) for value in (one.ratio, *ends)), floor, None if floor is None else -floor]
        logs += [value for value in values if value is not None]
    low, high = max(min(logs), -WIDEST), min(max(logs), WIDEST)
    low, high = min(low, 0.0), max(high, 0.0)
    missing = max(LEAST_SPAN - (high - low), 0.0) / 2
    air = 0.05 * (high - low) + missing
    return low - air, high + air


def _floor(one: Comparison) -> float | None:
    """The noise floor in log units, if it is one."""
    usable = one.noise_floor is not None and math.isfinite(one.noise_floor) and one.noise_floor > 0
    return math.log1p(one.noise_floor) if usable and one.noise_floor is not None else None


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and math.isfinite(value) and value > 0 else None


def _ticks(axis: _Axis) -> list[float]:
    """Round ratios inside the axis, none closer to another than a label is wide."""
    chosen: list[float] = []
    for tick in _TICKS:
        value = math.log(tick)
        if axis.holds(value) and all(abs(value - math.log(c)) * axis.scale >= _TICK_GAP for c in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _short(name: str) -> str:
    return name if len(name) <= LABEL_CHARS else name[: LABEL_CHARS - 1] + "…"
