"""A trace's JSON in pieces: some megabytes of events are decoded at a time, and the file is never in memory whole.

A piece ends between two events. Such a position is a guess, and the decoder proves it: a prefix of an array is itself
an array if, and only if, it ends between two of its elements. Inside a nested list or a string, the prefix leaves
something open.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from aisp_mcp.profile.readers.allowance import Allowance
from aisp_mcp.profile.readers.files import GZIP, READABLE, bad, too_large
from aisp_mcp.profile.readers.text import clean

_PIECE = 8 * 2**20
_LARGEST = 64 * 2**20  # bytes of one event, or of everything before or after the events
_TRIES = 50  # guesses per piece
_CUT = re.compile(rb"\}\s*,\s*\{")
_BYTE = re.compile(r"\(byte (\d+)\)$")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_START = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|args)"\s*:)')  # between two events
_CLOSE = re.compile(rb"\}\s*\]")
_DAMAGED = 0.1  # at most this share of a file's events is left out


class MessageArgs(msgspec.Struct, gc=False):
    """The arguments of a collective, as PyTorch writes them since 2.3."""

    dtype: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    sent: Any = msgspec.field(default=None, name="In msg nelems")
    received: Any = msgspec.field(default=None, name="Out msg nelems")
    ranks: Any = msgspec.field(default=None, name="Group size")


class Args(MessageArgs, gc=False):
    """The arguments that are used; all others are skipped without being built."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    correlation_id: Any = None  # as XLA writes it
    label: Any = msgspec.field(default=None, name="name")  # of a process or thread
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")


class TraceEvent(msgspec.Struct, gc=False):
    """An event as written. Numbers that are not integers stay text, so that nothing is rounded."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


_typed = msgspec.json.Decoder(list[TraceEvent], float_hook=str)
_any = msgspec.json.Decoder(float_hook=str)
_ARGS = {field.encode_name: field.name for field in msgspec.structs.fields(Args)}
_NONE = Args()


class Pieces:
    """Lists of events; None for anything that is not an object. `head` has the other keys once all pieces are read."""

    def __init__(self, path: Path, allowance: Allowance) -> None:
        self.head: dict[str, Any] = {}
        self._path = path
        self._allowance = allowance
        self._chunks = _chunks(path)
        self._rest = b""
        self._read = 0  # bytes of the file, decompressed
        self._searched = 0  # there is no possible end of a piece before this
        self._open = b"["  # prefix that makes the rest complete JSON
        self._events = 0
        self.damaged = 0  # events that are not JSON

    def __iter__(self) -> Iterator[list[TraceEvent | None]]:
        """Raise UsageError BAD_PROFILE for incomplete JSON or JSON without a list of events, AispError TOO_LARGE."""
        self._begin()
        for chunk in self._chunks:
            self._allowance.check()
            self._rest += chunk
            self._read += len(chunk)
            for end, begin in self._guesses():
                if (events := _decode(b"[" + self._rest[:end] + b"]")) is not None:
                    self._rest, self._searched = self._rest[begin:], 0
                    self._events += len(events)
                    yield events
                    break
            if len(self._rest) > 2 * _PIECE and len(rows := _START.split(self._rest)) > 1:
                self._rest, self._searched = rows.pop(), 0
                yield self._salvaged(rows)
            self._bounded()
        yield self._end()

    def _begin(self) -> None:
        """Everything up to the events."""
        for chunk in self._chunks:
            self._rest += chunk
            self._read += len(chunk)
            text = self._rest.lstrip(b"\xef\xbb\xbf \t\r\n")
            if text.startswith(b"["):
                self._rest = text[1:]
                return
            for match in _EVENTS.finditer(text):
                if isinstance(head := _whole(text[: match.end()] + b"]}"), dict):
                    self.head = head
                    self._rest, self._open = text[match.end() :], b'{"traceEvents":['
                    return
            self._bounded()
        if self._rest and _whole(self._rest) is not None:
            raise bad(f"{self._path.name!r} is JSON, but not a trace: it has no list 'traceEvents'.", READABLE)
        raise bad(f"{self._path.name!r} is not complete JSON.")

    def _guesses(self) -> Iterator[tuple[int, int]]:
        """(end of one event, start of the next), from the last backwards."""
        low = max(0, len(self._rest) - 65_536)
        near = [(m.start() + 1, m.end() - 1) for m in _CUT.finditer(self._rest, low)]
        if not near:
            near = [(m.start() + 1, m.end() - 1) for m in _CUT.finditer(self._rest, self._searched)]
            self._searched = low if not near else 0
        yield from near[: -_TRIES - 1 : -1]

    def _end(self) -> list[TraceEvent | None]:
        whole = _whole(self._open + self._rest)
        before: list[TraceEvent | None] = []
        if whole is None:  # unless the file is cut short, some of its events are not JSON
            *rows, last = _START.split(self._rest)
            whole = _whole(self._open + last) or self._without_last(last)
            before = self._salvaged(rows) if whole is not None else []
        if isinstance(whole, dict):
            events = whole.pop("traceEvents", None)
            self.head |= whole
        else:
            events = whole
        if not isinstance(events, list) or self.damaged > _DAMAGED * (self._events + len(events)):
            raise bad(f"{self._path.name!r} is not complete JSON: {self._fault()}.")
        return before + [_event(row) for row in events]

    def _without_last(self, last: bytes) -> Any:
        """The file's end behind its last event, if only that is not JSON."""
        for match in [*_CLOSE.finditer(last)][: -_TRIES - 1 : -1]:
            if (whole := _whole(self._open + last[match.end() - 1 :])) is not None:
                self.damaged += 1
                return whole
        return None

    def _salvaged(self, rows: list[bytes]) -> list[TraceEvent | None]:
        """Events, without those that are not JSON. rows: each up to its last brace.

        PyTorch writes some names with quotes and backslashes as they are, and one of them spoils the whole file.
        """
        good: list[TraceEvent | None] = []
        groups = [rows[at : at + 1000] for at in range(0, len(rows), 1000)][::-1]
        while groups:
            group = groups.pop()
            if (events := _decode(b"[" + b"},".join(group) + b"}]")) is not None:
                good += events
            elif len(group) == 1:
                self.damaged += 1
            else:
                groups += [group[len(group) // 2 :], group[: len(group) // 2]]
        self._events += len(good)
        return good

    def _fault(self) -> str:
        """The first fault, and its place in the (decompressed) file."""
        try:
            _any.decode(self._open + self._rest)
        except ValueError as error:
            if at := _BYTE.search(str(error)):
                byte = self._read - len(self._rest) + int(at[1]) - len(self._open)
                return f"{clean(str(error)[: at.start()].removeprefix('JSON is malformed: '), 80)} at byte {byte:,}"
        return f"it ends after {self._read:,} bytes, inside its list of events"

    def _bounded(self) -> None:
        if len(self._rest) > _LARGEST:
            raise too_large(f"{self._path.name!r} has more than {_LARGEST:,} bytes without an event's end")


def _decode(data: bytes) -> list[TraceEvent | None] | None:
    """The events of an array, or None if data is not an array."""
    try:
        events: list[TraceEvent | None] = list(_typed.decode(data))
    except msgspec.ValidationError:
        rows = _whole(data)
        return [_event(row) for row in rows] if isinstance(rows, list) else None
    except RecursionError as error:
        raise bad("The JSON is nested too deeply.") from error
    except ValueError:
        rows = _whole(data)
        return [_event(row) for row in rows] if isinstance(rows, list) else None
    return events


def _whole(data: bytes) -> Any:
    """Any JSON, including PyTorch's deviations from the standard: NaN, Infinity, control characters in names, and names
    cut inside a character.
    """
    try:
        return _any.decode(data)
    except RecursionError as error:
        raise bad("The JSON is nested too deeply.") from error
    except ValueError as error:
        at = _BYTE.search(str(error))
        control = at is not None and data[int(at[1]) : int(at[1]) + 1] < b" "
        text = data.decode("utf-8", "replace")
        if not control and "\ufffd" not in text and "NaN" not in text and "Infinity" not in text:
            return None
    try:
        return json.loads(text, parse_float=str, parse_constant=lambda _: None, strict=False)
    except (ValueError, RecursionError):
        return None


def _event(row: Any) -> TraceEvent | None:
    if not isinstance(row, dict):
        return None
    args = row.get("args")
    known = {_ARGS[key]: item for key, item in args.items() if key in _ARGS} if isinstance(args, dict) else {}
    plain = {key: row.get(key) for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
    return TraceEvent(**plain, args=Args(**known) if known else None)


def arguments(event: TraceEvent) -> Args:
    return event.args or _NONE


def _chunks(path: Path) -> Iterator[bytes]:
    """The file, decompressed if it is gzip."""
    with path.open("rb") as file:
        compressed = file.read(2) == GZIP
        file.seek(0)
        if not compressed:
            while chunk := file.read(_PIECE):
                yield chunk
            return
        yield from _inflated(iter(lambda: file.read(2**20), b""))


def _inflated(source: Iterator[bytes]) -> Iterator[bytes]:
    """All members. Raises UsageError BAD_PROFILE for damaged or truncated files."""
    decompressor, out, begun = zlib.decompressobj(wbits=31), bytearray(), False
    try:
        for data in source:
            rest = data
            while rest:
                if decompressor.eof:
                    rest = rest.lstrip(b"\x00")
                    decompressor, begun = zlib.decompressobj(wbits=31), False
                    continue
                begun = True
                out += decompressor.decompress(rest, _PIECE)
                rest = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
                if len(out) >= _PIECE:
                    yield bytes(out)
                    out.clear()
    except zlib.error as error:
        raise bad(f"The gzip file is damaged: {clean(error, 100)}.") from error
    if begun and not decompressor.eof:
        raise bad("The gzip file is cut short.")
    yield bytes(out)
