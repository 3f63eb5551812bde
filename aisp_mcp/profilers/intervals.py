"""Exact arithmetic on half-open intervals of integer nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(parts: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals in order that cover the same points; empty ones vanish, touching ones join."""
    merged: list[Interval] = []
    first, last = 0, -1
    for start, end in sorted(parts):
        if end <= start:
            continue
        if last < first:
            first, last = start, end
        elif start <= last:
            last = max(last, end)
        else:
            merged.append((first, last))
            first, last = start, end
    if last > first:
        merged.append((first, last))
    return merged


def length(parts: Sequence[Interval]) -> int:
    """Total length; meaningful for disjoint intervals."""
    return sum(end - start for start, end in parts)


def intersect(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Points in both. Both must be disjoint and ordered, as `union` gives them."""
    both: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            both.append((start, end))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return both


def subtract(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Points of a that are not in b. Both must be disjoint and ordered."""
    left: list[Interval] = []
    j = 0
    for begin, end in a:
        start = begin
        while j < len(b) and b[j][1] <= start:
            j += 1
        k = j
        while k < len(b) and b[k][0] < end:
            if b[k][0] > start:
                left.append((start, b[k][0]))
            start = max(start, b[k][1])
            k += 1
        if start < end:
            left.append((start, end))
    return left


def clip(parts: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """What of disjoint, ordered parts lies in [start, end)."""
    return intersect(parts, [(start, end)]) if end > start else []
