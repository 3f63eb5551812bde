"""The difference of two flame graphs as text: the calls of a regressed benchmark that take longer at the head."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aisp_mcp.errors import AispError
from aisp_mcp.judge.pair import Pair
from aisp_mcp.profile.load import load_trace
from aisp_mcp.profile.pictures import flame
from aisp_mcp.profile.pictures.flame import Weighed
from aisp_mcp.profile.readers.stacks import Stacks
from aisp_mcp.profile.recording import target_program
from aisp_mcp.profile.recording.ran import RoleName
from aisp_mcp.server.text import numbers

MOST = 3  # benchmarks to record: each takes two processes under a profiler
RECORD_S = 120.0
LINES, DEPTH, NAME = 18, 10, 44  # of one graph as text, and characters of a name
LEAST = 0.05  # share of the largest change: smaller changes are left out
BAR = 20


@dataclass
class Node:
    """One frame with everything it calls, before and after."""

    before: int = 0
    after: int = 0
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def change(self) -> int:
        return self.after - self.before


def difference(pair: Pair, size: str) -> str:
    """Record both programs of a pair under torch.profiler and compare; a sentence if that is impossible."""
    try:
        with tempfile.TemporaryDirectory(prefix="aisp-flame-") as temporary:
            traces = [_recorded(pair, role, size, Path(temporary) / role) for role in target_program.ROLES]
            before, after = flame.of_traces([load_trace(trace) for trace in traces])
    except AispError as error:
        return f"No flame graph: {error.code}: {error.message}"[:300]
    return as_text(before, after)


def _recorded(pair: Pair, role: RoleName, size: str, folder: Path) -> Path:
    folder.mkdir()
    subject = replace(target_program.subject(pair, role), size=size)
    (trace, _), _ = target_program.torch(subject, folder, "full", RECORD_S)
    return trace


def as_text(before: Weighed, after: Weighed) -> str:
    """A tree of the frames that changed most, one line each: times before and after, and a bar for the change."""
    root = _tree(before.stacks, after.stacks)
    largest = max((abs(node.change) for _, _, node in _walk(root)), default=0)
    if not largest:
        return "Both commits have the same flame graph."
    rows = [row for row in _walk(root) if abs(row[2].change) >= LEAST * largest][:LINES]
    per = f" per {after.per}" if after.per else ""
    head = f"{f'frame{per}':<{NAME}} {'base':>9} {'head':>9}  change"
    return "\n".join([head, *(_line(depth, name, node, largest) for depth, name, node in rows)])


def _tree(before: Stacks, after: Stacks) -> Node:
    root = Node()
    for stacks, is_after in ((before, False), (after, True)):
        for stack, weight in stacks.items():
            node = root
            for frame in stack:
                node = node.children.setdefault(frame, Node())
                if is_after:
                    node.after += weight
                else:
                    node.before += weight
    return root


def _walk(root: Node, depth: int = 0) -> Iterator[tuple[int, str, Node]]:
    """(depth, name, node) of all frames, the most changed first among those of one caller."""
    if depth < DEPTH:
        for name, node in sorted(root.children.items(), key=lambda child: (-abs(child[1].change), child[0])):
            yield depth, name, node
            yield from _walk(node, depth + 1)


def _line(depth: int, name: str, node: Node, largest: int) -> str:
    label = "  " * depth + clean(name)
    label = label if len(label) <= NAME else f"{label[: NAME - 1]}…"
    times = [numbers.seconds(value / 1e9) if value else "–" for value in (node.before, node.after)]
    percent = (
        "new" if not node.before else "gone" if not node.after else f"{100 * (node.after / node.before - 1):+.0f} %"
    )
    bar = ("█" if node.change > 0 else "░") * max(round(BAR * abs(node.change) / largest), 1)
    return f"{label:<{NAME}} {times[0]:>9} {times[1]:>9}  {percent:>7} {bar}".rstrip()


def clean(name: str) -> str:
    """A name without anything that could end a block of code, or a line of it."""
    return "".join("'" if char == "`" else char if char.isprintable() else " " for char in name)


def most_regressed(targets: Sequence[tuple[str, float | None]]) -> list[str]:
    """The names of the largest losses, at most MOST. targets: with their ratios."""
    return [name for name, _ in sorted(targets, key=lambda target: target[1] or 1.0)[:MOST]]
