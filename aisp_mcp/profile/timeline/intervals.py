"""Exact arithmetic on half-open intervals of integer nanoseconds."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import lt
from typing import NamedTuple, TypeAlias

Interval = tuple[int, int]
Column: TypeAlias = "array[int]"


def column(values: Iterable[int] = ()) -> Column:
    """64-bit integers. Raises OverflowError for larger ones."""
    return array("q", values)


class Cover(NamedTuple):
    """Disjoint intervals in order, as columns: 16 bytes each."""

    begin: Column
    end: Column

    @classmethod
    def of(cls, start: Iterable[int], end: Iterable[int]) -> Cover:
        """Union of intervals in order of start; empty ones vanish, touching ones join."""
        if isinstance(start, array) and isinstance(end, array) and _apart(start, end):
            return cls(start[:], end[:])
        open_cover = OpenCover()
        begins, ends, until = open_cover.begins, open_cover.ends, BEFORE
        for low, high in zip(start, end, strict=True):
            if low > until:
                if high > low:
                    begins.append(low)
                    ends.append(until)
                    until = high
                    if len(begins) == _MANY:
                        open_cover.flush()
            elif high > until:
                until = high
        open_cover.until = until
        return open_cover.cover()

    @classmethod
    def merged(cls, covers: Sequence[Cover]) -> Cover:
        """Union of several."""
        some = [cover for cover in covers if cover.begin]
        if len(some) == 1:
            return some[0]
        rows = sorted(pair for cover in some for pair in zip(cover.begin, cover.end, strict=True))
        return cls.of((row[0] for row in rows), (row[1] for row in rows))

    def length(self) -> int:
        return sum(self.end) - sum(self.begin)

    def inside(self, start: int, end: int) -> int:
        """Length of the overlap with [start, end)."""
        low = bisect_right(self.end, start)
        high = bisect_left(self.begin, end, low)
        if high <= low or end <= start:
            return 0
        whole = sum(self.end[low:high]) - sum(self.begin[low:high])
        return whole - max(0, start - self.begin[low]) - max(0, self.end[high - 1] - end)

    def without(self, other: Cover) -> Cover:
        """Points that are not in the other."""
        if not other.begin or not self.begin:
            return self
        if len(other.begin) * _FEW < len(self.begin):
            return self._without_few(other)
        cover = Cover(column(), column())
        begin: list[int] = []
        end: list[int] = []
        others = zip(other.begin, other.end, strict=True)
        low, high = next(others, _NEVER)
        for start, stop in zip(self.begin, self.end, strict=True):
            while high <= start:
                low, high = next(others, _NEVER)
            while low < stop:
                if low > start:
                    begin.append(start)
                    end.append(low)
                start = high
                if high >= stop:
                    break
                low, high = next(others, _NEVER)
            if start < stop:
                begin.append(start)
                end.append(stop)
            if len(begin) >= _MANY:
                cover.pack(begin, end)
        cover.pack(begin, end)
        return cover

    def _without_few(self, other: Cover) -> Cover:
        """The same: runs of intervals that do not touch the other are copied as they are."""
        cover = Cover(column(), column())
        at, begun = 0, self.begin[0]  # the next interval, and the start of what remains of it
        for low, high in zip(other.begin, other.end, strict=True):
            first = bisect_right(self.end, low, at)
            last = bisect_left(self.begin, high, first)
            if first == last:
                continue
            cover.copy(self, at, first, begun)
            start = begun if first == at else self.begin[first]
            if start < low:
                cover.begin.append(start)
                cover.end.append(low)
            if self.end[last - 1] > high:
                at, begun = last - 1, high
            else:
                at, begun = last, self.begin[last] if last < len(self.begin) else 0
        cover.copy(self, at, len(self.begin), begun)
        return cover

    def copy(self, other: Cover, low: int, high: int, begun: int) -> None:
        """Append the other's intervals from index low to high. The first of them is cut off before begun."""
        if low < high:
            self.begin.append(begun)
            self.begin.extend(other.begin[low + 1 : high])
            self.end.extend(other.end[low:high])

    def pack(self, begin: list[int], end: list[int]) -> None:
        """Move the content of the lists into columns."""
        for values, new in ((self.begin, begin), (self.end, end)):
            values.extend(column(new))
            new.clear()


_NEVER = (2**64, 2**64)
_MANY = 2**18
_FEW = 16  # times fewer intervals: found by bisection
BEFORE = -(2**64)


def _apart(start: Column, end: Column) -> bool:
    """Return True if each begins after the previous one has ended, and none is empty."""
    return all(map(lt, start, end)) and all(map(lt, end, islice(start, 1, None)))


class OpenCover:
    """Union under construction: for each interval, ends has the end of the previous one."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.until = BEFORE
        self._done = Cover(column(), column())

    def flush(self) -> None:
        """Move the content of the lists into columns."""
        if self.ends and self.ends[0] == BEFORE:
            del self.ends[0]
        self._done.pack(self.begins, self.ends)

    def cover(self) -> Cover:
        self.flush()
        if self.until > BEFORE:
            self._done.end.append(self.until)
        return self._done


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


def clip(parts: Sequence[Interval], start: int, end: int) -> list[Interval]:
    """Overlap of disjoint, ordered parts with [start, end)."""
    if end <= start:
        return []
    low = bisect_right(parts, start, key=lambda part: part[1])
    inside = list(parts[low : bisect_left(parts, end, low, key=lambda part: part[0])])
    if inside and inside[0][0] < start:
        inside[0] = (start, inside[0][1])
    if inside and inside[-1][1] > end:
        inside[-1] = (inside[-1][0], end)
    return inside
