"""A flame graph, or the difference of two, as one HTML file with zoom and search that fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from importlib.resources import files
from string import Template

from aisp_mcp.profile.pictures import flame
from aisp_mcp.profile.readers.text import clean, duration
from aisp_mcp.profile.timeline.trace import Trace

Stacks = Mapping[tuple[str, ...], int]
_DEPTH = 200
_BOXES = 12_000  # the widest; what lies on a box that is left out is left out too
_MIN_SHARE = 1e-5


class _Node:
    """One box: total weights in a and b, and what is on top of it."""

    __slots__ = ("a", "b", "children")

    def __init__(self) -> None:
        self.a = 0
        self.b = 0
        self.children: dict[str, _Node] = {}


def to_html(b: Stacks, unit: str, title: str, a: Stacks | None = None, per: str = "") -> str:
    """With a: widths are b's, colours the change (red: more time). per: what the weights are of, such as iteration."""
    root = _tree(a or {}, b)
    levels: dict[int, list[str]] = {}
    for name, node, depth, left, width in _widest(root):
        levels.setdefault(depth, []).append(_box(name, node, (depth, left, width), unit, root, a is not None))
    note = f"{_weight(root.b, unit)} in all{f' per {per}' if per else ''}"
    if a is not None:
        note += f", before {_weight(root.a, unit)}; red took longer, blue shorter"
    rows = "".join(f'<div class="row">{"".join(levels[depth])}</div>' for depth in sorted(levels))
    script = _read("flame.js")
    return Template(_read("flame.html")).substitute(
        title=html.escape(clean(title, 200)),
        note=html.escape(note),
        rows=rows,
        style=_read("flame.css"),
        script=script,
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def difference(traces: Sequence[Trace], title: str) -> str:
    """The page of two traces, the earlier one first."""
    before, after = flame.of_traces(traces)
    return to_html(after.stacks, after.unit, title, before.stacks, after.per)


def _read(name: str) -> str:
    return (files("aisp_mcp.profile.pictures") / "templates" / name).read_text("utf-8")


def _tree(a: Stacks, b: Stacks) -> _Node:
    root = _Node()
    for source, is_b in ((a, False), (b, True)):
        for stack, weight in source.items():
            node = root
            for frame in ("", *stack):
                node = node.children.setdefault(frame, _Node()) if frame else root
                if is_b:
                    node.b += weight
                else:
                    node.a += weight
    return root


def _widest(root: _Node) -> list[tuple[str, _Node, int, float, float]]:
    """(name, node, depth, left, width) of at most _BOXES boxes, in shares of the whole, by depth and place."""
    whole, number = root.b or 1, 0
    found: list[tuple[str, _Node, int, float, float]] = []
    todo: list[tuple[float, int, str, _Node, int, float]] = [(-1.0, 0, "", root, -1, 0.0)]
    while todo and len(found) < _BOXES:
        width, _, name, node, depth, left = heappop(todo)
        if depth >= 0:
            found.append((name, node, depth, left, -width))
        for child_name, child in sorted(node.children.items()):
            share = child.b / whole
            if share >= _MIN_SHARE and depth + 1 < _DEPTH:
                number += 1
                heappush(todo, (-share, number, child_name, child, depth + 1, left))
            left += share
    return sorted(found, key=lambda box: (box[2], box[3]))


def _box(name: str, node: _Node, place: tuple[int, float, float], unit: str, root: _Node, against: bool) -> str:
    depth, left, width = place
    share = f"{100 * node.b / (root.b or 1):.3g} %"
    if against:
        change = (node.b - node.a) / max(node.b, node.a, 1)
        colour = f"hsl({0 if change > 0 else 215} 75% {92 - 35 * min(abs(change), 1):.0f}%)"
        told = f"{_weight(node.b, unit)}, {share}; before {_weight(node.a, unit)} ({_change(node)})"
    else:
        colour = f"hsl({20 + sum(name.encode()) % 40} 80% 78%)"
        told = f"{_weight(node.b, unit)}, {share}"
    label = html.escape(clean(name, 512), quote=True)
    where = f'data-depth="{depth}" data-left="{left:.9g}" data-width="{width:.9g}"'
    style = f"left:{left:.4%};width:{width:.4%};background:{colour}"
    return f'<button type="button" {where} title="{label}: {html.escape(told)}" style="{style}">{label}</button>'


def _change(node: _Node) -> str:
    return f"{100 * (node.b / node.a - 1):+.3g} %" if node.a else "new"


def _weight(value: int, unit: str) -> str:
    """A time as a person writes it; other units with separators."""
    return duration(value) if unit == "nanoseconds" else f"{value:,} {clean(unit, 20)}"
