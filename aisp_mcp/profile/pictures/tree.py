"""Stacks as boxes of a flame graph, widest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

Stacks = Mapping[tuple[str, ...], int]
MAX_DEPTH, MIN_SHARE = 200, 1e-5


class Node:
    """One frame above its callers: weights before (a) and after (b), and the frames it calls."""

    __slots__ = ("a", "b", "children")

    def __init__(self) -> None:
        self.a = 0
        self.b = 0
        self.children: dict[str, Node] = {}

    @property
    def change(self) -> float:
        """From -1 (gone) over 0 (unchanged) to 1 (new)."""
        return (self.b - self.a) / max(self.b, self.a, 1)


@dataclass(frozen=True)
class Box:
    """A node with its stack and position: left and width are shares of the whole."""

    stack: tuple[str, ...]
    node: Node
    left: float
    width: float

    @property
    def depth(self) -> int:
        return len(self.stack) - 1


def build(after: Stacks, before: Stacks | None = None) -> Node:
    """The root of the tree of all stacks."""
    root = Node()
    for stacks, is_after in ((before or {}, False), (after, True)):
        for stack, weight in stacks.items():
            node = root
            for frame in ("", *stack):
                node = node.children.setdefault(frame, Node()) if frame else root
                if is_after:
                    node.b += weight
                else:
                    node.a += weight
    return root


def widest(root: Node, most: int, max_depth: int = MAX_DEPTH, min_share: float = MIN_SHARE) -> list[Box]:
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
