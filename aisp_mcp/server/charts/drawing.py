"""Chart: a list of SVG shapes that needs no further layout, with the same figures as text and as a table.

Horizontal positions are per cent of the width and vertical ones are pixels, so one drawing fits a report of 1,000
pixels and a chat of 360 with text of one size. Text from outside is only ever the text of a shape or a cell: code that
puts a drawing into a page escapes it (`to_svg`) or sets it as text (the view's script). The logarithmic axis at the end
turns values into positions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from aisp_mcp.server.text.escape import visible

NAMESPACE = "http://www.w3.org/2000/svg"
DOT = 6.0
FILE_WIDTH, EDGE, HEAD = 760, 16, 40


@dataclass(frozen=True)
class Shape:
    """One SVG element. text: the content of a text element, or the tooltip of any other element.

    inner: elements in its coordinates, clipped at its edges; only a shape with the tag `svg` has any.
    """

    tag: str
    attributes: Mapping[str, str | float]
    text: str = ""
    inner: Sequence[Shape] = ()


@dataclass(frozen=True)
class Drawing:
    """title: one line. about: a description for readers who cannot see it. columns, rows: the figures, all as text."""

    title: str
    about: str
    height: float
    shapes: Sequence[Shape]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)


def line(look: str, x: float, y: float, x2: float, y2: float, text: str = "") -> Shape:
    """A straight line. look: its class in chart.css."""
    return Shape("line", {"class": look, "x1": across(x), "y1": down(y), "x2": across(x2), "y2": down(y2)}, text)


def box(look: str, x: float, y: float, x2: float, y2: float, text: str = "") -> Shape:
    """A filled rectangle from its top left to its bottom right corner, with a visible minimum width."""
    size: dict[str, str | float] = {
        "class": look,
        "x": across(x),
        "y": down(y),
        "width": across(max(x2 - x, 0.15)),
        "height": down(y2 - y),
    }
    return Shape("rect", size, text)


def dot(look: str, x: float, y: float, text: str = "", radius: float = DOT) -> Shape:
    return Shape("circle", {"class": look, "cx": across(x), "cy": down(y), "r": down(radius)}, text)


def words(look: str, x: float, y: float, text: str, anchor: str = "start", shift: float = 0.0) -> Shape:
    """One line of text from (start), around (middle) or up to (end) x, moved right by shift pixels."""
    moved = {"dx": down(shift)} if shift else {}
    alignment = {"text-anchor": anchor} if anchor != "start" else {}
    return Shape("text", {"class": look, "x": across(x), "y": down(y), **alignment, **moved}, text)


def labelled(look: str, x: float, y: float, x2: float, y2: float, label: str, text: str) -> Shape:
    """A rectangle with a label that is clipped at its edge. text: its tooltip."""
    size: dict[str, str | float] = {"x": across(x), "y": down(y), "width": across(x2 - x), "height": down(y2 - y)}
    fill = Shape("rect", {"class": look, "width": "100%", "height": "100%"})
    inner = (fill, Shape("text", {"class": "in", "x": 4, "y": down(y2 - y - 5)}, label)) if label else (fill,)
    return Shape("svg", size, text, inner)


def across(x: float) -> str:
    return f"{round(x, 2):g}%"


def down(y: float) -> float:
    return round(y, 1)


def to_svg(drawing: Drawing) -> str:
    """The drawing as an SVG element for a page that includes chart.css."""
    head = _open(drawing, 'width="100%"')
    return f"{head}{_inside(drawing)}</svg>"


def to_decoration(shapes: Sequence[Shape], height: float) -> str:
    """An SVG element that adds nothing to the neighbouring text, and is hidden from screen readers."""
    return (
        f'<svg class="chart" aria-hidden="true" height="{height:g}" width="100%">{"".join(map(_element, shapes))}</svg>'
    )


def to_file(drawing: Drawing) -> str:
    """The drawing as a separate SVG file with a title, in light colours: programs that render files support
    no others.
    """
    width, height = file_size(drawing)
    head = f'<svg xmlns="{NAMESPACE}" width="{width}" height="{height}" font-family="sans-serif">'
    back = '<rect width="100%" height="100%" fill="#ffffff"/>'
    title = f'<text x="{EDGE}" y="{HEAD - 14}" font-size="15" font-weight="600">{escape(visible(drawing.title))}</text>'
    inner = _open(drawing, f'x="{EDGE}" y="{HEAD}" width="{width - 2 * EDGE}"')
    return f"{head}<style>{light()}</style>{back}{title}{inner}{_inside(drawing)}</svg></svg>\n"


def file_size(drawing: Drawing) -> tuple[int, int]:
    """Width and height of the file in pixels."""
    return FILE_WIDTH, round(drawing.height) + HEAD + EDGE


def to_data(drawing: Drawing) -> dict[str, Any]:
    """The drawing as JSON for the view's script."""
    shapes: list[list[Any]] = [
        [s.tag, dict(s.attributes), *([visible(s.text)] if s.text else [])] for s in drawing.shapes
    ]
    table = {"columns": list(drawing.columns), "rows": [[visible(cell) for cell in row] for row in drawing.rows]}
    texts: dict[str, Any] = {"title": visible(drawing.title), "about": visible(drawing.about)}
    return {**texts, "height": drawing.height, "shapes": shapes, **(table if table["rows"] else {})}


def _open(drawing: Drawing, size: str) -> str:
    return f'<svg class="chart" role="img" aria-label="{_attribute(drawing.about)}" height="{drawing.height:g}" {size}>'


def _inside(drawing: Drawing) -> str:
    return "".join(map(_element, drawing.shapes))


def style() -> str:
    """The style of all charts; its colours follow the page's colour scheme."""
    return (files("aisp_mcp.server.charts") / "chart.css").read_text("utf-8")


def kinds() -> str:
    """The colours of kinds of activity, for timelines and flame graphs: one variable for each class of kinds.css."""
    return (files("aisp_mcp.server.charts") / "kinds.css").read_text("utf-8")


def light() -> str:
    """The same with the first colour of each pair, for SVG renderers without colour schemes."""
    plain = re.sub(r"var\([^,()]+,\s*(light-dark\([^()]+\))\)", r"\1", style())
    return re.sub(r"light-dark\(([^,()]+),[^()]+\)", r"\1", plain)


def _element(shape: Shape) -> str:
    attributes = "".join(f' {name}="{_attribute(str(value))}"' for name, value in shape.attributes.items())
    text = escape(visible(shape.text))
    inside = text if shape.tag == "text" else f"<title>{text}</title>" if text else ""
    inside += "".join(map(_element, shape.inner))
    return f"<{shape.tag}{attributes}>{inside}</{shape.tag}>"


def _attribute(text: str) -> str:
    return escape(visible(text).replace("\n", " "), quote=True)


@dataclass(frozen=True)
class LogAxis:
    """Natural logarithms from low to high, laid out from start to end (per cent of a width, or pixels)."""

    low: float
    high: float
    start: float
    end: float

    def position(self, log_value: float) -> float:
        """Position of a value; values outside are clipped to the end."""
        inside = min(max(log_value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, log_value: float) -> bool:
        return self.low <= log_value <= self.high

    def ticks(self, candidates: Iterable[float], gap: float) -> list[float]:
        """The values inside the axis that are at least gap apart; earlier candidates take precedence."""
        chosen: list[float] = []
        for value in candidates:
            at = log(value)
            if at is None or not self.holds(at):
                continue
            if all(abs(self.position(at) - self.position(math.log(other))) >= gap for other in chosen):
                chosen.append(value)
        return sorted(chosen)


def log(value: float | None) -> float | None:
    """The natural logarithm of a finite positive number; None for everything else."""
    return math.log(value) if value is not None and math.isfinite(value) and value > 0 else None


def decades(values: Sequence[float]) -> tuple[float, float]:
    """The whole powers of ten around some logarithms, at least one apart, as logarithms."""
    ten = math.log(10)
    low, high = math.floor(min(values) / ten), math.ceil(max(values) / ten)
    return low * ten, max(high, low + 1) * ten
