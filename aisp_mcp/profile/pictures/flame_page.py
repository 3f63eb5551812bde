"""A flame graph, or the difference of two, as one HTML file with zoom and search that fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib.resources import files
from string import Template

from aisp_mcp.profile.pictures import flame, kinds
from aisp_mcp.profile.readers.stacks import UNNAMED
from aisp_mcp.profile.readers.text import clean, duration
from aisp_mcp.profile.timeline.trace import Trace
from aisp_mcp.server.charts import drawing

_BOXES = 12_000  # the widest


def to_html(b: StackWeights, unit: str, title: str, a: StackWeights | None = None, per: str = "") -> str:
    """With a: widths are b's, colours show the change (red: more time). per: the unit of the weights, such as
    iteration.
    """
    root = build(b, a)
    levels: dict[int, list[str]] = {}
    boxes = widest(root, _BOXES)
    for box in boxes:
        levels.setdefault(box.depth, []).append(_box(box, unit, root, a is not None))
    note = f"{_weight(root.b, unit)} in all{f' per {per}' if per else ''}"
    if a is not None:
        note += f", before {_weight(root.a, unit)}; red took longer, blue shorter"
    rows = "".join(f'<div class="row">{"".join(levels[depth])}</div>' for depth in sorted(levels))
    script = _read("flame.js")
    return Template(_read("flame.html")).substitute(
        title=html.escape(clean(title, 200)),
        note=html.escape(note),
        rows=rows,
        legend="" if a is not None else _legend(boxes),
        style=_read("flame.css") + drawing.kinds(),
        script=script,
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def difference(traces: Sequence[Trace], title: str) -> str:
    """The page of two traces, the earlier one first."""
    before, after = flame.of_traces(traces)
    return to_html(after.stacks, after.unit, title, before.stacks, after.per)


def _read(name: str) -> str:
    return (files("aisp_mcp.profile.pictures") / "templates" / name).read_text("utf-8")


def _legend(boxes: Sequence[Box]) -> str:
    items = kinds.legend(kinds.of_frame(box.stack) for box in boxes)
    rows = "".join(f'<li class="k-{kind}">{html.escape(words)}</li>' for kind, words in items)
    return f'<ul class="legend" aria-label="Colours">{rows}</ul>'


def _box(box: Box, unit: str, root: FrameNode, against: bool) -> str:
    node, kind = box.node, ""
    style = f"left:{box.left:.4%};width:{box.width:.4%}"
    if against:
        style += f";background:hsl({0 if node.change > 0 else 215} 75% {92 - 24 * min(abs(node.change), 1):.0f}%)"
    else:
        kind = f' class="k-{kinds.of_frame(box.stack)}"'
    label = html.escape(clean(box.stack[-1], 512), quote=True)
    numbers = f'data-depth="{box.depth}" data-left="{box.left:.9g}" data-width="{box.width:.9g}"'
    tip = html.escape(describe(node, unit, root.b, against))
    return f'<button type="button" {numbers} title="{label}: {tip}" style="{style}"{kind}>{label}</button>'


def describe(node: FrameNode, unit: str, whole: int, against: bool) -> str:
    """A box's weight and share, and its change if there is an earlier profile."""
    text = f"{_weight(node.b, unit)}, {100 * node.b / (whole or 1):.3g} %"
    return f"{text}; before {_weight(node.a, unit)} ({_change(node)})" if against else text


def _change(node: FrameNode) -> str:
    return f"{100 * (node.b / node.a - 1):+.3g} %" if node.a else "new"


def _weight(value: int, unit: str) -> str:
    """A time in a readable unit; other units with separators."""
    return duration(value) if unit == "nanoseconds" else f"{value:,} {'counts' if unit == UNNAMED else clean(unit, 20)}"


StackWeights = Mapping[tuple[str, ...], int]
MAX_DEPTH, MIN_SHARE = 200, 1e-5


class FrameNode:
    """One frame above its callers: weights before (a) and after (b), and the frames it calls."""

    __slots__ = ("a", "b", "children")

    def __init__(self) -> None:
        self.a = 0
        self.b = 0
        self.children: dict[str, FrameNode] = {}

    @property
    def change(self) -> float:
        """From -1 (gone) over 0 (unchanged) to 1 (new)."""
        return (self.b - self.a) / max(self.b, self.a, 1)


@dataclass(frozen=True)
class Box:
    """A node with its stack and position: left and width are shares of the whole."""

    stack: tuple[str, ...]
    node: FrameNode
    left: float
    width: float

    @property
    def depth(self) -> int:
        return len(self.stack) - 1


def build(after: StackWeights, before: StackWeights | None = None) -> FrameNode:
    root = FrameNode()
    for stacks, is_after in ((before or {}, False), (after, True)):
        for stack, weight in stacks.items():
            node = root
            for frame in ("", *stack):
                node = node.children.setdefault(frame, FrameNode()) if frame else root
                if is_after:
                    node.b += weight
                else:
                    node.a += weight
    return root


def widest(root: FrameNode, most: int, max_depth: int = MAX_DEPTH, min_share: float = MIN_SHARE) -> list[Box]:
    """At most that many boxes, by depth and position; boxes above an omitted one are omitted too."""
    whole, number = root.b or 1, 0
    boxes: list[Box] = []
    queue: list[tuple[float, int, Box]] = [(-1.0, 0, Box((), root, 0.0, 1.0))]
    while queue and len(boxes) < most:
        box = heappop(queue)[2]
        if box.stack:
            boxes.append(box)
        left = box.left
        for name, child in sorted(box.node.children.items()):
            share = child.b / whole
            if share >= min_share and len(box.stack) < max_depth:
                number += 1
                heappush(queue, (-share, number, Box((*box.stack, name), child, left, share)))
            left += share
    return sorted(boxes, key=lambda box: (box.depth, box.left))
