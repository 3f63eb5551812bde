"""Events of a trace as columns: 28 bytes per operation or call, however many millions there are.

Repeated data (the names, the stream, the shape of the launch) is one record that many events refer to. Records of
single events are created on demand; sums and searches work on the columns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import lt, sub
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast, overload

from aisp_mcp.profile.timeline.events import HOST_FUNCTIONS, NO_LINK, GpuOp, HostCall, LaunchShape, Message, OpKind
from aisp_mcp.profile.timeline.intervals import BEFORE, Column, Cover, OpenCover, column

Event = TypeVar("Event", GpuOp, HostCall)
Fact = TypeVar("Fact", "OpFact", "CallFact")
Key = TypeVar("Key", bound=Hashable)
_STEP = 2**18  # events per union that are lists before they become columns


class OpFact(NamedTuple):
    """Properties of an operation that others share; see GpuOp. captured: for a node of a CUDA graph, the named ranges
    around its capture, outermost first; None if it is no such node or the recording does not say.
    """

    device: int
    stream: int
    kind: OpKind
    name: str
    process: int
    bytes: int
    shape: LaunchShape | None
    message: Message | None
    captured: tuple[str, ...] | None = None


class CallFact(NamedTuple):
    """Properties of a call that others share; see HostCall."""

    thread: int
    process: int
    name: str


class Columns(Sequence[Event], Generic[Event, Fact]):
    """start, end: ns. number: correlation id, 0 for none. fact: index in facts."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.start, self.end, self.number = column(), column(), column()
        self.fact: Column = array("i")
        self.facts: list[Fact] = []
        self._indices: dict[Fact, int] = {}
        self._durations: list[dict[int, int]] | None = None
        self._slice_of: tuple[Self, int, int] | None = None
        for event in events:
            self.append(event)

    def intern(self, fact: Fact) -> int:
        """Index of the record in `facts`, where it is added if it is new."""
        if (index := self._indices.get(fact)) is None:
            index = self._indices[fact] = len(self.facts)
            self.facts.append(fact)
        return index

    def extend(self, start: Iterable[int], end: Iterable[int], number: Iterable[int], fact: Iterable[int]) -> None:
        """Append events. fact: results of `intern`."""
        self.start.extend(column(start))
        self.end.extend(column(end))
        self.number.extend(column(number))
        self.fact.extend(fact)

    def append(self, event: Event) -> None:
        raise NotImplementedError

    def take(self, where: Sequence[int] | slice) -> Self:
        """The events at these indices, in that order."""
        cut = type(self)()
        cut.facts, cut._indices = self.facts, self._indices
        for name in ("start", "end", "number", "fact"):
            values: Column = getattr(self, name)
            rows = values[where] if isinstance(where, slice) else array(values.typecode, map(values.__getitem__, where))
            setattr(cut, name, rows)
        return cut

    def part(self, low: int, high: int) -> Self:
        """The events from index low to high, which remember the columns they are part of."""
        cut = self.take(slice(low, high))
        if high - low > len(self) // 2:
            cut._slice_of = (self, low, high)
        return cut

    def order(self) -> Sequence[int] | None:
        """Indices of the events that do not end before they start, by time; None if those are all, in order."""
        whole = not any(map(lt, self.end, self.start))
        if whole and all(map(lt, self.start, islice(self.start, 1, None))):
            return None
        begun = self.start
        numbers = sorted((at for at in range(len(begun)) if begun[at] <= self.end[at]), key=begun.__getitem__)
        low = 0
        for at in range(1, len(numbers) + 1):  # events with the same start are ordered as records
            if at < len(numbers) and begun[numbers[at]] == begun[numbers[low]]:
                continue
            if at - low > 1:
                numbers[low:at] = sorted(numbers[low:at], key=self.__getitem__)
            low = at
        return numbers

    def durations(self) -> list[dict[int, int]]:
        """Per record of `facts`: the number of occurrences of each duration. Those of a slice are all minus
        the others.
        """
        if self._durations is None:
            totals: list[dict[int, int]] = [defaultdict(int) for _ in self.facts]
            step, rest = 1, [self]
            if self._slice_of is not None:
                whole, low, high = self._slice_of
                totals = [defaultdict(int, times) for times in whole.durations()]
                step, rest = -1, [whole[:low], whole[high:]]
            for part in rest:
                for fact, ns in zip(part.fact, map(sub, part.end, part.start), strict=True):
                    totals[fact][ns] += step
            self._durations = [{ns: many for ns, many in times.items() if many} for times in totals]
        return self._durations

    def covers(self, key: Callable[[Fact], Key]) -> dict[Key, Cover]:
        """The union of the events of each key of their records; keys without events are left out. Events are in order
        of start.
        """
        keys = [key(fact) for fact in self.facts]
        if len(set(keys)) == 1:
            cover = Cover.of(self.start, self.end)
            return {keys[0]: cover} if cover.begin else {}
        open_covers = {key: OpenCover() for key in keys}
        rows = [open_covers[key] for key in keys]
        for low in range(0, len(self), _STEP):
            part = slice(low, low + _STEP)
            for fact, start, end in zip(self.fact[part], self.start[part], self.end[part], strict=True):
                row = rows[fact]
                if start > row.until:
                    if end > start:
                        row.begins.append(start)
                        row.ends.append(row.until)
                        row.until = end
                elif end > row.until:
                    row.until = end
            for row in open_covers.values():
                row.flush()
        return {key: row.cover() for key, row in open_covers.items() if row.until > BEFORE}

    def parted(self, key: Callable[[Fact], Key | None]) -> dict[Key, tuple[Column, Column]]:
        """Starts and ends of the events of each key of their records; keys without events, and None, are left out."""
        keys = [key(fact) for fact in self.facts]
        columns_by_key = {key: (column(), column()) for key in keys if key is not None}
        has_key = [key is not None for key in keys]
        for at in compress(range(len(self)), map(has_key.__getitem__, self.fact)) if columns_by_key else ():
            rows = columns_by_key[cast("Key", keys[self.fact[at]])]
            rows[0].append(self.start[at])
            rows[1].append(self.end[at])
        return {key: rows for key, rows in columns_by_key.items() if rows[0]}

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Self: ...
    def __getitem__(self, at: int | slice) -> Event | Self:
        if isinstance(at, slice):
            return self.take(at)
        return self._record(self.start[at], self.end[at], self.number[at], self.facts[self.fact[at]])

    def __iter__(self) -> Iterator[Event]:
        return map(self._record, self.start, self.end, self.number, map(self.facts.__getitem__, self.fact))

    @staticmethod
    def _record(start: int, end: int, number: int, fact: Any) -> Event:
        raise NotImplementedError


class LaunchColumns(NamedTuple):
    """Calls that launched operations, in order of start: start and end of each one's work, and its length.

    call: index among the calls.
    """

    call: Column
    start: Column
    end: Column
    first: Column
    last: Column
    spent: list[int]

    def take(self, where: Sequence[int] | slice) -> LaunchColumns:
        """Those at these indices, in that order."""
        if isinstance(where, slice):
            rows = [values[where] for values in self[:5]]
            return LaunchColumns(rows[0], rows[1], rows[2], rows[3], rows[4], self.spent[where])
        rows = [column(list(map(values.__getitem__, where))) for values in self[:5]]
        return LaunchColumns(rows[0], rows[1], rows[2], rows[3], rows[4], list(map(self.spent.__getitem__, where)))


class Ops(Columns[GpuOp, OpFact]):
    """Operations on devices. launch: index of each one's call in `launches`, or -1; both are set by `join`."""

    def __init__(self, events: Iterable[GpuOp] = ()) -> None:
        super().__init__(events)
        self.launch: Column = array("i")
        self.launches: LaunchColumns | None = None

    @staticmethod
    def _record(start: int, end: int, number: int, fact: OpFact) -> GpuOp:
        device, stream, kind, name, process, size, shape, message, _ = fact
        return GpuOp(start, end, device, stream, kind, name, (process, number), size, shape, message)

    def append(self, event: GpuOp) -> None:
        start, end, device, stream, kind, name, (process, number), size, shape, message = event
        fact = OpFact(device, stream, kind, name, process, size, shape, message)
        self.extend((start,), (end,), (number,), (self.intern(fact),))

    def join(self, calls: Calls) -> None:
        """Find the call that launched each operation: the last one with its correlation id.

        Both must be in order of start.
        """
        processes = sorted({fact.process for fact in self.facts})
        keys, call_keys = _keys(self, processes), _keys(calls, processes)
        op_keys = set(keys)
        op_keys.discard(0)
        at: dict[int, int] = {}
        for index in compress(range(len(calls)), map(op_keys.__contains__, call_keys)):
            at[call_keys[index]] = index
        del op_keys
        call = column(sorted(at.values()))
        at.update((call_keys[index], row) for row, index in enumerate(call))
        self.launch = array("i", (at.get(key, -1) for key in keys))
        del at
        first, last, spent = column([-1]) * len(call), column([-1]) * len(call), [-1] * len(call)
        for row, start, end in zip(self.launch, self.start, self.end, strict=True):
            if row < 0:
                continue
            if spent[row] < 0:
                first[row], last[row], spent[row] = start, end, end - start
            else:
                last[row] = max(last[row], end)
                spent[row] += end - start
        begun, ended = calls.start, calls.end
        rows = (column(map(begun.__getitem__, call)), column(map(ended.__getitem__, call)))
        self.launches = LaunchColumns(call, *rows, first, last, spent)

    def cut(self, indices: Sequence[int], low: int, high: int) -> Ops:
        """The operations at these indices that the calls from low to high launched, if any did."""
        all_of = self.launches
        assert all_of is not None
        first, last = bisect_left(all_of.call, low), bisect_left(all_of.call, high)
        whole = len(indices) and indices[-1] - indices[0] == len(indices) - 1
        remaining = self.part(indices[0], indices[-1] + 1) if whole else self.take(indices)
        remaining.launch = array("i", (max(self.launch[at] - first, -1) for at in indices))
        rows = all_of.take(slice(first, last))
        remaining.launches = rows._replace(call=column(at - low for at in rows.call))
        return remaining


class Calls(Columns[HostCall, CallFact]):
    """Calls into the runtime or the driver."""

    @staticmethod
    def _record(start: int, end: int, number: int, fact: CallFact) -> HostCall:
        known = number or fact.name.startswith(HOST_FUNCTIONS)
        return HostCall(start, end, fact.thread, fact.name, (fact.process, number) if known else NO_LINK)

    def append(self, event: HostCall) -> None:
        fact = CallFact(event.thread, event.link[0], event.name)
        self.extend((event.start,), (event.end,), (event.link[1],), (self.intern(fact),))


def _keys(events: Ops | Calls, processes: Sequence[int]) -> Sequence[int]:
    """Correlation ids, unique over these processes; 0 for none, and for events of other processes."""
    indices = {process: at for at, process in enumerate(processes)}
    of_fact = [indices.get(fact.process, -1) for fact in events.facts]
    if len(indices) == 1 and not any(of_fact):
        return events.number
    many = len(indices)
    return [
        number * many + of_fact[fact] if number and of_fact[fact] >= 0 else 0
        for number, fact in zip(events.number, events.fact, strict=True)
    ]
