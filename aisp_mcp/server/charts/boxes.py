"""Boxes on boxes: a flame graph with its base at the top, labels cut at the edge of each box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.server.charts.drawing import Drawing, labelled

ROW, LABELLED = 20.0, 0.02  # a narrower box has no label


@dataclass(frozen=True)
class Cell:
    """One box. left, width: shares of the whole. text: its tooltip."""

    depth: int
    left: float
    width: float
    label: str
    style: str
    text: str


def draw(title: str, cells: Sequence[Cell], limit: int = 12) -> Drawing:
    """The boxes, and a table of the widest boxes that are not a whole row."""
    shapes = [
        labelled(
            f"cell {cell.style}",
            100 * cell.left,
            ROW * cell.depth,
            100 * (cell.left + cell.width),
            ROW * (cell.depth + 1) - 1,
            cell.label if cell.width >= LABELLED else "",
            f"{cell.label}: {cell.text}",
        )
        for cell in cells
    ]
    deepest = max((cell.depth for cell in cells), default=0)
    widest = sorted(cells, key=lambda cell: -cell.width)[:limit]
    rows = [(cell.label, str(cell.depth), cell.text) for cell in widest]
    about = f"{title}: {len(cells)} boxes. Widest: " + "; ".join(f"{cell.label} {cell.text}" for cell in widest[:3])
    return Drawing(title, about, ROW * (deepest + 1), shapes, ("frame", "depth", "weight"), rows)


def change_style(change: float) -> str:
    """The class of a change between -1 (gone) and 1 (new): hot4 to hot1, even, cold1 to cold4."""
    size = min(round(abs(change) * 8), 4)
    return "even" if not size else f"{'hot' if change > 0 else 'cold'}{size}"
