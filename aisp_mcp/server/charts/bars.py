"""Named horizontal bars: shares of a whole, or values against the limit of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.server.charts.drawing import Drawing, Shape, box, labelled, line, words
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.escape import short

ROW, FOOT, STACK, LABEL_CHARS = 40.0, 4.0, 38.0, 40
UNKNOWN = "unknown"  # style of an unknown part
WIDE_ENOUGH = 0.07  # larger shares are written into their part


@dataclass(frozen=True)
class Bar:
    """One bar. share: its length between 0 and 1. value: its text. style: a class of chart.css.

    band: an interval of the share. limit: text for the full length, if the bar is measured against a limit.
    """

    name: str
    share: float
    value: str
    style: str = "c2"
    text: str = ""
    band: tuple[float, float] | None = None
    limit: str = ""


def draw(title: str, bars: Sequence[Bar], columns: tuple[str, str] = ("part", "value")) -> Drawing:
    """One row for each bar, with its name and value above it."""
    shapes: list[Shape] = []
    for number, bar in enumerate(bars):
        shapes += _row(bar, ROW * number)
    about = f"{title}: " + "; ".join(f"{bar.name} {bar.value}" for bar in bars[:12]) + "."
    has_limits = any(bar.limit for bar in bars)
    rows = [(bar.name, bar.value, *((bar.limit or numbers.MISSING,) if has_limits else ())) for bar in bars]
    return Drawing(title, about, ROW * len(bars) + FOOT, shapes, (*columns, *(("limit",) if has_limits else ())), rows)


def _row(bar: Bar, top: float) -> list[Shape]:
    tip = bar.text or f"{bar.name}: {bar.value}"
    share = min(max(bar.share, 0.0), 1.0)
    shapes = [
        words("name", 0, top + 14, short(bar.name, LABEL_CHARS)),
        words(f"word {bar.style}", 100, top + 14, bar.value, "end"),
        box("track", 0, top + 20, 100, top + 32, f"{tip}; limit {bar.limit}" if bar.limit else tip),
        box(f"fill {bar.style}", 0, top + 20, 100 * share, top + 32, tip),
    ]
    if bar.band:
        low, high = (100 * min(max(end, 0.0), 1.0) for end in bar.band)
        shapes.append(line(f"span {bar.style}", low, top + 26, high, top + 26, tip))
    return shapes


def stack(title: str, parts: Sequence[tuple[str, int, str]]) -> Drawing:
    """One bar of parts that add up to a whole. parts: (name, count, style)."""
    whole, left = sum(count for _, count, _ in parts) or 1, 0.0
    shapes: list[Shape] = []
    for name, count, style in parts:
        share = count / whole
        tip = f"{count:,} {name}, {numbers.percent(share)}"
        shapes.append(box(f"fill {style}", 100 * left, 2, 100 * (left + share), 34, tip))
        if share >= WIDE_ENOUGH and style != UNKNOWN:
            shapes.append(words("on", 100 * left + 50 * share, 22, f"{count:,}", "middle"))
        left += share
    about = f"{title}: " + ", ".join(f"{count} {name}" for name, count, _ in parts) + "."
    return Drawing(title, about, STACK, shapes)


BOX_ROW, LABELLED = 20.0, 0.02  # a narrower box has no label


@dataclass(frozen=True)
class Cell:
    """One box. left, width: shares of the whole. text: its tooltip."""

    depth: int
    left: float
    width: float
    label: str
    style: str
    text: str


def draw_boxes(title: str, cells: Sequence[Cell], limit: int = 12) -> Drawing:
    """The boxes, and a table of the widest boxes that are not a whole row."""
    shapes = [
        labelled(
            f"cell {cell.style}",
            100 * cell.left,
            BOX_ROW * cell.depth,
            100 * (cell.left + cell.width),
            BOX_ROW * (cell.depth + 1) - 1,
            cell.label if cell.width >= LABELLED else "",
            f"{cell.label}: {cell.text}",
        )
        for cell in cells
    ]
    deepest = max((cell.depth for cell in cells), default=0)
    widest = sorted(cells, key=lambda cell: -cell.width)[:limit]
    rows = [(cell.label, str(cell.depth), cell.text) for cell in widest]
    about = f"{title}: {len(cells)} boxes. Widest: " + "; ".join(f"{cell.label} {cell.text}" for cell in widest[:3])
    return Drawing(title, about, BOX_ROW * (deepest + 1), shapes, ("frame", "depth", "weight"), rows)


def change_style(change: float) -> str:
    """The class of a change between -1 (gone) and 1 (new): hot4 to hot1, even, cold1 to cold4."""
    size = min(round(abs(change) * 8), 4)
    return "even" if not size else f"{'hot' if change > 0 else 'cold'}{size}"
