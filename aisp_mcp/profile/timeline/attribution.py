"""From device work back to the host calls that launched it: operators, modules and Python frames.

The launching call and the operator or frame around it are on one thread; nesting follows from time alone. Work that a
backward thread launches has operators there, but no Python frame, and is counted accordingly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from aisp_mcp.profile.records import CallStat, OpStat
from aisp_mcp.profile.timeline.events import GpuOp, HostCall
from aisp_mcp.profile.timeline.ranges import Launch

OUTSIDE = "[launched outside of any]"
_MAX_DEPTH = 1000


class _Open:
    """A call that has not returned at the current point of the sweep."""

    __slots__ = ("end", "gpu", "name", "operations")

    def __init__(self, name: str, end: int) -> None:
        self.name, self.end = name, end
        self.gpu = self.operations = 0


class Launched(NamedTuple):
    """Device time by name of the enclosing calls."""

    whole: Counter[str]  # including children; a call inside one of its own name counts once
    own: dict[str, Counter[str]]  # innermost call → kernel → ns
    operations: Counter[str]


def attribute(
    calls: Sequence[HostCall], launches: dict[int, list[Launch]], ops: dict[tuple[int, int], list[GpuOp]]
) -> Launched:
    """launches: per thread, in order of start."""
    launched = Launched(Counter(), defaultdict(Counter), Counter())
    by_thread: dict[int, list[HostCall]] = defaultdict(list)
    for call in calls:
        if call.thread in launches:
            by_thread[call.thread].append(call)
    for thread, rows in launches.items():
        _sweep(sorted(by_thread[thread], key=lambda c: (c.start, -c.end)), rows, ops, launched)
    return launched


def _sweep(
    calls: Sequence[HostCall], launches: Sequence[Launch], ops: dict[tuple[int, int], list[GpuOp]], launched: Launched
) -> None:
    stack: list[_Open] = []
    names: Counter[str] = Counter()
    at = 0
    for start, _, link in launches:
        while at < len(calls) and calls[at].start <= start:
            _close(stack, names, launched, calls[at].start)
            if len(stack) < _MAX_DEPTH:
                stack.append(_Open(calls[at].name, calls[at].end))
                names[calls[at].name] += 1
            at += 1
        _close(stack, names, launched, start)
        inner = stack[-1] if stack else None
        for op in ops[link]:
            spent = op.end - op.start
            launched.own[inner.name if inner else OUTSIDE][op.name] += spent
            if inner:
                inner.gpu += spent
                inner.operations += 1
            else:
                launched.whole[OUTSIDE] += spent
                launched.operations[OUTSIDE] += 1
    _close(stack, names, launched, None)


def _close(stack: list[_Open], names: Counter[str], launched: Launched, now: int | None) -> None:
    """End the calls that returned before now; their work also counts for their callers."""
    while stack and (now is None or stack[-1].end <= now):
        done = stack.pop()
        names[done.name] -= 1
        if done.operations and not names[done.name]:
            launched.whole[done.name] += done.gpu
            launched.operations[done.name] += done.operations
        if stack:
            stack[-1].gpu += done.gpu
            stack[-1].operations += done.operations


def call_stats(rows: Sequence[OpStat], launched: Launched) -> list[CallStat]:
    """Host totals with the device work next to them, largest sum of both first; work without a launch comes last."""
    table = [_row(row, launched) for row in rows]
    if spent := launched.whole[OUTSIDE]:
        count = launched.operations[OUTSIDE]
        facts = {"total_ns": 0, "median_ns": 0, "min_ns": 0, "max_ns": 0, "share": 0.0}
        none = OpStat.model_validate({"name": OUTSIDE, "count": count, **facts})
        table.append(_row(none, launched).model_copy(update={"gpu_ns": spent}))
    return sorted(table, key=lambda r: (-r.self_gpu_ns - r.total_ns, r.name))


def _row(row: OpStat, launched: Launched) -> CallStat:
    own = launched.own.get(row.name)
    return CallStat(
        **row.model_dump(),
        operations=launched.operations[row.name],
        gpu_ns=launched.whole[row.name],
        self_gpu_ns=sum(own.values()) if own else 0,
        kernel=own.most_common(1)[0][0] if own else None,
    )
