"""Ratios with their intervals on a common logarithmic axis.

One row per comparison: a dot for the ratio, a bar for its interval, a band around 1 as wide as the run's own noise
floor. Rows without a ratio show the verdict as text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.server.charts.drawing import Drawing, LogAxis, Shape, box, dot, line, log, words
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import short

TOP, ROW, FOOT = 0.0, 46.0, 30.0
LABEL = 19.0  # lines leave the upper part of each row to its text: see the dashes of .rows in chart.css
START, END, TICK_GAP = 5.0, 95.0, 13.0  # per cent of the width: room for a tick's label, also on a narrow screen
LABEL_CHARS = 26
LEAST_SPAN = math.log(1.1)  # a chart of equal candidates must not magnify noise to the full width
WIDEST = math.log(1e4)  # beyond this the axis ends; values outside are marked as such
_TICKS = (  # the more important first
    *(1.0, 2.0, 0.5, 10.0, 0.1, 100.0, 0.01, 5.0, 0.2, 1e3, 1e-3, 1e4, 1e-4, 1.5, 0.7, 1.2, 0.8, 1.1, 0.9, 1.05, 0.95),
    *(20.0, 0.05, 3.0, 0.3, 50.0, 0.02, 1.02, 0.98),
)
LEGEND = (
    "Right of 1× the candidate is better. Dot: ratio; bar: its confidence interval over fresh processes; grey band: "
    "what the run would report for two identical programs (noise floor). Logarithmic axis; » marks what is beyond it."
)


@dataclass(frozen=True)
class RatioRow:
    """One row: low and high are the ends of the interval, floor is the noise floor as a fraction.

    at_least: the ratio is a lower bound. provisional: there is only one replicate.
    """

    name: str
    verdict: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    at_least: bool = False
    provisional: bool = False

    @property
    def outcome(self) -> str:
        """The row's text of ratio and verdict."""
        return f"{numbers.ratio(self.ratio, self.at_least)} {numbers.verdict(self.verdict, self.provisional)}"

    @property
    def label(self) -> str:
        """The same beside the name, where a phone has room for the hollow mark alone."""
        return self.outcome.removesuffix(" (provisional)")

    @property
    def interval(self) -> tuple[float, float] | None:
        """In log units, if there is a ratio; an end that is not a positive number is infinite."""
        value = log(self.ratio)
        if value is None:
            return None
        if self.low is None and self.high is None:
            return value, value
        low, high = log(self.low), log(self.high)
        return (-math.inf if low is None else low), (math.inf if high is None else high)

    @property
    def noise(self) -> float | None:
        """The noise floor in log units, if it is one."""
        usable = self.floor is not None and math.isfinite(self.floor) and self.floor > 0
        return math.log1p(self.floor) if usable and self.floor is not None else None


def draw(rows: Sequence[RatioRow], title: str = "Ratio of baseline to candidate") -> Drawing:
    """Draw the rows, in their order."""
    axis = LogAxis(*_range(rows), START, END)
    bottom = TOP + ROW * len(rows)
    unity_x = axis.position(0.0)
    shapes: list[Shape] = []
    for tick in axis.ticks(_TICKS, TICK_GAP):
        x = axis.position(math.log(tick))
        shapes += [line("grid rows", x, TOP + LABEL, x, bottom), words("tick", x, bottom + 18, f"{tick:g}×", "middle")]
    shapes.append(line("one rows", unity_x, TOP + LABEL, unity_x, bottom))
    for index, (row, name) in enumerate(zip(rows, _names(rows), strict=True)):
        shapes += _row(row, name, TOP + ROW * index, axis)
    counts = Counter(row.verdict for row in rows)
    about = f"{title}: " + ", ".join(f"{count} {word}" for word, count in counts.items()) + f". {LEGEND}"
    return Drawing(title, about, bottom + FOOT, shapes, _COLUMNS, [_cells(row) for row in rows])


_COLUMNS = ("target", "verdict", "ratio", "interval", "noise floor")


def _cells(row: RatioRow) -> tuple[str, ...]:
    ends = numbers.MISSING if row.low is None else f"{numbers.ratio(row.low)} to {numbers.ratio(row.high)}"
    word, ratio = numbers.verdict(row.verdict, row.provisional), numbers.ratio(row.ratio, row.at_least)
    return row.name, word, ratio, ends, numbers.percent(row.floor)


def _names(rows: Sequence[RatioRow]) -> list[str]:
    """Names truncated to fit; those that would then be equal keep more of their ends."""
    labels = [short(row.name, LABEL_CHARS) for row in rows]
    whole = {name: {row.name for row, label in zip(rows, labels, strict=True) if label == name} for name in labels}
    return [
        f"…{row.name[1 - LABEL_CHARS :]}" if len(whole[label]) > 1 else label
        for row, label in zip(rows, labels, strict=True)
    ]


def _row(row: RatioRow, name: str, top: float, axis: LogAxis) -> list[Shape]:
    y, outcome = top + 31.0, row.outcome
    shapes = [words("name", 0, top + 15, name)]
    interval = row.interval
    if interval is None:
        return [
            *shapes,
            words(f"word {row.verdict}", 100, top + 15, f"{row.verdict.replace('_', ' ')}, no ratio", "end"),
        ]
    value, (low, high), floor = log(row.ratio) or 0.0, interval, row.noise
    beyond = " »" if not all(axis.holds(at) for at in (low, value, high)) else ""
    tip = f"{row.name}: {outcome}, interval {_cells(row)[3]}" + (", beyond the axis" if beyond else "")
    if floor is not None:
        shapes.append(box("floor", axis.position(-floor), y - 9, axis.position(floor), y + 9))
    return [
        *shapes,
        words(f"word {row.verdict}", 100, top + 15, row.label + beyond, "end"),
        line(f"span {row.verdict}", axis.position(low), y, axis.position(high), y, tip),
        dot(f"spot {row.verdict}{' provisional' * row.provisional}", axis.position(value), y, tip),
    ]


def _range(rows: Sequence[RatioRow]) -> tuple[float, float]:
    """Axis ends in log units: all numbers and 1, with a margin."""
    logs = [0.0]
    for row in rows:
        floor = row.noise
        ends = [log(end) for end in (row.ratio, row.low, row.high)] if log(row.ratio) is not None else []
        logs += [at for at in (*ends, floor, None if floor is None else -floor) if at is not None]
    low, high = max(min(logs), -WIDEST), min(max(logs), WIDEST)
    low, high = min(low, 0.0), max(high, 0.0)
    missing = max(LEAST_SPAN - (high - low), 0.0) / 2
    air = 0.05 * (high - low) + missing
    return low - air, high + air
