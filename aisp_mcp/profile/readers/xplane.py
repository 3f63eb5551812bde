"""JAX and TensorFlow: XLA's `.xplane.pb`, decoded from its protobuf fields without a generated schema.

Field numbers are those of tsl/profiler/protobuf/xplane.proto. Its times are picoseconds; they are rounded down to
nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from aisp_mcp.profile.readers.allowance import Allowance, collector_held
from aisp_mcp.profile.readers.files import ProfileFile, bad, read
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import ProfiledDevice
from aisp_mcp.profile.timeline.events import NO_LINK, GpuOp, HostCall, HostRange, Message, OpKind
from aisp_mcp.profile.timeline.names import collective, is_communication
from aisp_mcp.profile.timeline.trace import Trace

Fields = dict[int, list[int | bytes]]
_ROCM_COPIES = {"H2D": "CopyHostToDevice", "D2H": "CopyDeviceToHost", "D2D": "CopyDeviceToDevice"}
_STREAMS, _OPS, _STEPS = "Stream", "XLA Ops", "Steps"


class _Event(NamedTuple):
    start: int
    end: int
    name: str
    link: int


class _Line(NamedTuple):
    name: str
    number: int
    events: list[_Event]


@collector_held()
def read_trace(file: ProfileFile) -> Trace:
    """Device streams as operations, host threads as operators. Raises UsageError BAD_PROFILE, AispError TOO_LARGE."""
    trace, allowance = Trace(file.source("xplane", "XLA profiler", None)), Allowance()
    try:
        for plane in _fields(read(file)).get(1, []):
            _plane(_fields(_bytes(plane)), trace)
            allowance.check()
    except (IndexError, ValueError) as error:
        raise bad(
            f"{file.path.name!r} is not a complete xplane file.", "Record again with jax.profiler.trace."
        ) from error
    if not trace.gpu and not trace.operators:
        raise bad(f"{file.path.name!r} contains no event of a device or host.", "Record again with jax.profiler.trace.")
    return trace


def device_number(name: str) -> int | None:
    """3 for `/device:GPU:3` or `/device:TPU:3 …`, None if it is not an accelerator."""
    parts = name.split(" ")[0].split(":")
    return int(parts[2]) if len(parts) == 3 and parts[0] == "/device" and parts[2].isdigit() else None


def device_kind(name: str) -> tuple[OpKind, str, Message | None]:
    """The kind of a device event by its name, with the names that other formats give to copies."""
    if is_communication(name) or name.startswith(("all-reduce", "all-gather", "reduce-scatter", "all-to-all")):
        return "communication", name, Message(collective(name.replace("-", "_")), None, None, None)
    for short, route in (("H2D", "Host-to-Device"), ("D2H", "Device-to-Host"), ("D2D", "Device-to-Device")):
        if name.startswith((f"Memcpy{short}", _ROCM_COPIES[short])):
            return "memcpy", f"[CUDA memcpy {route}] unknown→unknown", None
    return ("memset", "[CUDA memset]", None) if name.lower().startswith("memset") else ("kernel", name, None)


def _plane(plane: Fields, trace: Trace) -> None:
    name = _text(plane, 2)
    stats = {key: _text(value, 2) for key, value in _entries(plane, 5)}
    link_ids = {key for key, text in stats.items() if text == "correlation_id"}
    names = {key: clean(_text(value, 4) or _text(value, 2) or "[unnamed]") for key, value in _entries(plane, 4)}
    lines = [_line(_fields(_bytes(raw)), names, link_ids) for raw in plane.get(3, [])]
    device = device_number(name)
    if device is not None:
        trace.devices.append(ProfiledDevice(index=device))
        _device_lines(device, lines, trace)
    elif name == "/host:CPU":
        for line in lines:
            thread = len(trace.operators) << 20 | line.number & 0xFFFFF
            for event in line.events:
                if event.link:
                    trace.api.append(HostCall(event.start, event.end, thread, event.name, (0, event.link)))
                else:
                    trace.operators.append(HostCall(event.start, event.end, thread, event.name, NO_LINK))


def _device_lines(device: int, lines: list[_Line], trace: Trace) -> None:
    """Streams if there are any, as on GPUs; else the operations of XLA. Other lines repeat the same time."""
    streams = [line for line in lines if line.name.startswith(_STREAMS)]
    for line in streams or [line for line in lines if line.name == _OPS]:
        for event in line.events:
            kind, name, message = device_kind(event.name)
            trace.gpu.append(
                GpuOp(event.start, event.end, device, line.number, kind, name, (0, event.link), 0, None, message)
            )
    for line in lines:
        if line.name == _STEPS:
            trace.ranges += [HostRange(e.start, e.end, -1 - device, f"step {e.name}") for e in line.events]


def _line(line: Fields, names: dict[int, str], link_ids: set[int]) -> _Line:
    base = _number(line, 3) * 1000
    events = []
    for raw in line.get(4, []):
        event = _fields(_bytes(raw))
        begin = base + _number(event, 2)
        link = _link(event, link_ids) if link_ids else 0
        label = names.get(_number(event, 1), "[unnamed]")
        events.append(_Event(begin // 1000, (begin + _number(event, 3)) // 1000, label, link))
    return _Line(_text(line, 11) or _text(line, 2), _number(line, 1), events)


def _link(event: Fields, link_ids: set[int]) -> int:
    for raw in event.get(4, []):
        stat = _fields(_bytes(raw))
        if _number(stat, 1) in link_ids:
            return _number(stat, 3) or _number(stat, 4)
    return 0


def _entries(fields: Fields, number: int) -> Iterator[tuple[int, Fields]]:
    """A protobuf map."""
    for raw in fields.get(number, []):
        entry = _fields(_bytes(raw))
        yield _number(entry, 1), _fields(_bytes(entry[2][0])) if 2 in entry else {}


def _number(fields: Fields, number: int) -> int:
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ValueError("a number was expected")
    return value


def _text(fields: Fields, number: int) -> str:
    return _bytes(fields.get(number, [b""])[-1]).decode("utf-8", "replace")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a message was expected")
    return value


def _fields(data: bytes) -> Fields:
    """One message: its values by field number. Raises IndexError or ValueError if it is not protobuf."""
    fields: Fields = defaultdict(list)
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            fields[key >> 3].append(value)
            continue
        if key & 7 == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7, -1)
        if size < 0 or at + size > end:
            raise ValueError("not protobuf, or cut short")
        fields[key >> 3].append(data[at : at + size])
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
