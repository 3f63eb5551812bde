"""torch.profiler: Kineto's trace JSON, to exact integer nanoseconds, of CUDA, ROCm and CPU-only runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any

from aisp_mcp.profile.readers import xplane
from aisp_mcp.profile.readers.allowance import Allowance, collector_held
from aisp_mcp.profile.readers.files import MAX_FILE, ProfileFile, bad, look, too_large
from aisp_mcp.profile.readers.files import read as read_bytes
from aisp_mcp.profile.readers.json_stream import Args, Pieces, TraceEvent, arguments
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import ProfiledDevice
from aisp_mcp.profile.timeline.events import (
    NO_LINK,
    GpuOp,
    HostCall,
    HostRange,
    LaunchShape,
    Message,
    OpKind,
    StreamWait,
)
from aisp_mcp.profile.timeline.names import collective, is_communication
from aisp_mcp.profile.timeline.trace import Trace

_MAX_CONTAINERS = 12_000_000  # objects and lists in one file: a bound on memory before anything is built
_WHOLE = 2**63
_API = {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "privateuse1_runtime", "xpu_runtime"}
_GPU: dict[str, OpKind] = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_GPU |= {"memcpy": "memcpy", "memset": "memset"}  # until PyTorch 1.9
# Known but not used here: arrows between events, instants, and projections of host ranges on the device.
_ASIDE = {"ac2g", "async_cpu_to_gpu", "async", "fwdbwd", "forward_backward", "cpu_instant_event", "gpu_user_annotation"}
_ASIDE |= {"trace", "overhead", "none", ""}
_NOTED = 10  # unknown categories to name
_COPY = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "PtoP": "Peer-to-Peer"}
_DTYPE_BYTES = {
    name: size
    for size, names in (
        (1, "byte char bool int8 uint8 float8"),
        (2, "half float16 bfloat16 short"),
        (4, "int int32 float float32"),
        (8, "long int64 double float64"),
    )
    for name in names.split()
}


@collector_held()
def read(path: str | Path | ProfileFile) -> Trace:
    """Read a whole trace. Raises NotFound, UsageError BAD_PROFILE, AispError TOO_LARGE."""
    file = path if isinstance(path, ProfileFile) else look(path, MAX_FILE)
    pieces = Pieces(file.path, Allowance())
    trace = Trace(file.source("kineto", "torch.profiler (Kineto)", None))
    reader = _TraceReader(trace)
    for events in pieces:
        reader.take(events)
    reader.finish()
    if pieces.damaged:
        many = f"{pieces.damaged:,} events are" if pieces.damaged > 1 else "1 event is"
        trace.faults.append(f"{many} not JSON (such as a name with quotes or backslashes as they are): left out.")
    trace.source = file.source("kineto", "torch.profiler (Kineto)", _version(pieces.head))
    trace.devices = reader.placed(_devices(pieces.head))
    info = pieces.head.get("distributedInfo")
    if isinstance(info, dict):
        trace.rank, trace.ranks = _whole(info.get("rank")), _whole(info.get("world_size"))
    if not any((trace.gpu, trace.api, trace.operators, trace.ranges, trace.frames)):
        raise bad(*reader.refusal(file.path.name))
    if not trace.gpu:
        trace.diagnostics.append("Reader: the trace has no device activity: CPU only, or the GPU was not recorded.")
    return trace


def load_json(file: ProfileFile) -> Any:
    """Parse, but leave numbers that are not integers as text, so that nothing is rounded."""
    data = read_bytes(file)
    if data.count(b"{") + data.count(b"[") > _MAX_CONTAINERS:
        raise too_large(f"{file.path.name!r} contains more than {_MAX_CONTAINERS:,} objects and lists")
    try:
        return json.loads(data, parse_float=str, parse_constant=lambda _: None, strict=False)
    except (ValueError, RecursionError) as error:
        raise bad(f"{file.path.name!r} is not complete JSON: {clean(error, 200)}.") from error


_FAR = 2**62  # nanoseconds: with start and duration below this, the end fits into 64 bits


def nanoseconds(value: Any) -> int | None:
    """Microseconds, an integer or the text of a decimal number, as the nearest integer of nanoseconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000 if abs(value) < _FAR // 1000 else None
    if not isinstance(value, str) or len(value) > 40:
        return None
    whole, _, part = value.partition(".")
    digits = whole + part.ljust(3, "0")
    if len(part) <= 3 and len(whole) < 16 and whole and digits.isdigit() and digits.isascii():
        return int(digits)
    try:
        exact = Decimal(value)
    except InvalidOperation:
        return None
    return int((exact * 1000).to_integral_value()) if exact.is_finite() and abs(exact) < _FAR // 1000 else None


class _TraceReader:
    """Sorts events into a trace. Unknown categories are counted and named, as are events without a time."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.name = lru_cache(maxsize=65_536)(clean)
        self.category = lru_cache(maxsize=1024)(_category)
        self.broken = 0
        self.unknown: Counter[str] = Counter()
        self.threads: dict[Any, int] = {}
        self.devices: dict[Any, int] = {}  # of a trace by XLA: process → device
        self.lanes: dict[tuple[Any, Any], str] = {}
        self.labels: dict[str, None] = {}  # of processes, in order
        self.seen: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()  # of the events that are not read; "" for none
        self.open: dict[int, list[tuple[int, str, Any]]] = {}
        self.places: dict[tuple[int | str, int], int] = {}  # (pid, device) of operations → number
        self.groups: dict[str, int] = {"": 0}  # what a script that merges ranks puts before each pid → number
        self.callers: set[int | str] = set()

    def take(self, events: list[TraceEvent | None]) -> None:
        for event in events:
            if event is None:
                self.broken += 1
            elif event.ph == "X":
                self._complete(event)
            elif event.ph == "M":
                self._labelled(event)
            elif event.ph == "B" or event.ph == "E":
                self._half(event)
            else:
                self.phases[clean(event.ph, 8) if isinstance(event.ph, str) else ""] += 1

    def finish(self) -> None:
        """Tell merged ranks apart, and report omissions."""
        self._apart()
        notes = self.trace.diagnostics
        if self.broken:
            which = "events have" if self.broken > 1 else "event has"
            self.trace.faults.append(
                f"{self.broken:,} {which} no usable time (none, or a negative duration): left out."
            )
        for category, count in self.unknown.most_common(_NOTED):
            notes.append(f"Reader: {count} events of the unknown category {category!r} were skipped.")

    def refusal(self, name: str) -> tuple[str, str]:
        """(what a trace without any known event contains, remedy)."""
        ascend = next((label for label in self.labels if label.startswith(("Ascend", "CANN", "NPU"))), None)
        if ascend is not None:
            return (
                f"{name!r} has a process {ascend!r}: a trace of torch_npu, which torch.profiler did not write.",
                "It cannot be read here; open it in MindStudio Insight.",
            )
        others = Counter({key or "no category": count for key, count in self.seen.items()})
        listed = ", ".join(f"{count:,} of {key!r}" for key, count in others.most_common(5))
        phases = ", ".join(
            f"{count:,} of phase {phase!r}" if phase else f"{count:,} without a phase"
            for phase, count in self.phases.most_common(5)
        )
        found = (
            f"Its events with a duration: {listed}."
            if listed
            else f"It has no event with a duration, only {phases or 'metadata'}."
        )
        return (
            f"{name!r} contains no operator, call, kernel or annotation of torch.profiler. {found}",
            "Traces of torch and JAX can be read here; others open in Perfetto or speedscope.",
        )

    def _apart(self) -> None:
        """Kineto gives each GPU one pid. More of them on one device are processes that a script merged."""
        trace, places = self.trace, list(self.places)
        merged = len({device for _, device in places}) < len(places)
        ops, calls = trace.gpu.facts, trace.api.facts
        if not merged:
            ops[:] = [fact._replace(device=places[fact.device][1], process=0) for fact in ops] if places else ops
            calls[:] = [fact._replace(process=0) for fact in calls]
            trace.waits = [wait._replace(link=(0, wait.link[1])) for wait in trace.waits]
            if places and len(self.callers) > 1:
                ops[:] = [fact._replace(process=-1) for fact in ops]
                trace.faults.append(
                    f"CUDA calls of {len(self.callers):,} processes are in this trace, and its operations do not say "
                    "which process launched them: one device here may be several GPUs, and causes of idle time are "
                    "unknown."
                )
            return
        known = {fact.process for fact in calls}
        if calls and (len(self.groups) == 1 or not {fact.process for fact in ops} <= known):
            ops[:] = [fact._replace(process=-1) for fact in ops]  # ids of different ranks would meet by chance
            trace.faults.append(
                "The trace merges processes, and its operations do not say which process launched them, so that causes "
                "of idle time are unknown."
            )

    def placed(self, listed: list[ProfiledDevice]) -> list[ProfiledDevice]:
        """Those of the file's head, once for each process that has them."""
        places = list(self.places)
        if len({device for _, device in places}) == len(places):
            return listed
        by_index = {device.index: device for device in listed}
        return [
            by_index[device].model_copy(update={"index": at})
            for at, (_, device) in enumerate(places)
            if device in by_index
        ]

    def _group(self, pid: Any) -> int:
        return self.groups.setdefault(pid[:80].rstrip("0123456789"), len(self.groups)) if isinstance(pid, str) else 0

    def _labelled(self, event: TraceEvent) -> None:
        """Assign an event of XLA, which has no categories: the names of its processes and threads identify devices."""
        label, key = arguments(event).label, (str(event.pid)[:80], str(event.tid)[:80])
        if event.name == "process_name" and isinstance(label, str):
            if len(self.labels) < 1000:
                self.labels[clean(label, 80)] = None
            device = xplane.device_number(label)
            if device is not None:
                self.devices[key[0]] = device
        elif event.name == "thread_name" and isinstance(label, str):
            self.lanes[key] = label[:200]

    def _xla(self, event: TraceEvent, name: str, start: int, end: int) -> None:
        process, lane = str(event.pid)[:80], self.lanes.get((str(event.pid)[:80], str(event.tid)[:80]), "")
        args, trace = arguments(event), self.trace
        link = (0, _whole(args.correlation_id) or 0)
        if process not in self.devices:
            if link[1]:
                trace.api.append(HostCall(start, end, self._thread(event), name, link))
            else:
                trace.operators.append(HostCall(start, end, self._thread(event), name, NO_LINK))
        elif lane.startswith("Stream") or lane == "XLA Ops":
            kind, name, message = xplane.device_kind(name)
            stream = _whole(event.tid) or 0
            device = self.devices[process]
            trace.gpu.append(GpuOp(start, end, device, stream, kind, name, link, 0, None, message))
        elif lane == "Steps":
            trace.ranges.append(HostRange(start, end, self._thread(event), f"step {name}"))

    def _complete(self, event: TraceEvent) -> None:
        start, duration = nanoseconds(event.ts), nanoseconds(event.dur)
        if start is None or duration is None or duration < 0:
            self.broken += 1
            return
        self._sort(event, self._named(event), event.cat, start, start + duration)

    def _half(self, event: TraceEvent) -> None:
        """Join begin and end that are separate events: only host ranges are written this way."""
        at = nanoseconds(event.ts)
        stack = self.open.setdefault(self._thread(event), [])
        if at is None:
            self.broken += 1
        elif event.ph == "B":
            if len(stack) < 1000:
                stack.append((at, self._named(event), event.cat))
        elif stack:
            start, name, category = stack.pop()
            self._sort(event, name, category, start, max(at, start))

    def _sort(self, event: TraceEvent, name: str, raw: Any, start: int, end: int) -> None:
        trace, category = self.trace, self.category(raw if isinstance(raw, str) else "")
        if not category and (self.devices or "/host:CPU" in self.labels):
            self._xla(event, name, start, end)
        elif category in ("cpu_op", "operator"):
            if name.startswith("ProfilerStep#"):  # an operator until PyTorch 1.9
                trace.ranges.append(HostRange(start, end, self._thread(event), name))
            else:
                trace.operators.append(HostCall(start, end, self._thread(event), name, NO_LINK))
        elif category in _API:
            link = (self._group(event.pid), _whole(arguments(event).correlation) or 0)
            self.callers.add(_pid(event.pid))
            trace.api.append(HostCall(start, end, self._thread(event), name, link))
        elif category == "python_function":
            trace.frames.append(HostCall(start, end, self._thread(event), name, NO_LINK))
        elif category in _GPU:
            self._gpu(_GPU[category], name, start, end, event)
        elif category == "user_annotation":
            trace.ranges.append(HostRange(start, end, self._thread(event), name))
        elif category == "cuda_sync":
            self._sync(name, start, end, event)
        elif category in _ASIDE:
            self.seen[category] += 1
        else:
            self.seen[clean(category, 40)] += 1
            self.unknown[clean(category, 40)] += 1

    def _sync(self, name: str, start: int, end: int, event: TraceEvent) -> None:
        args = arguments(event)
        self.trace.syncs.append((name, end - start))
        stream, link = _whole(args.stream), _whole(args.correlation)
        if name == "Stream Wait Event" and stream is not None and link is not None:
            self.trace.waits.append(StreamWait(_whole(args.device) or 0, stream, (self._group(event.pid), link)))

    def _gpu(self, kind: OpKind, name: str, start: int, end: int, event: TraceEvent) -> None:
        args = arguments(event)
        device = _whole(event.pid if args.device is None else args.device) or 0
        device = self.places.setdefault((_pid(event.pid), device), len(self.places))
        stream = _whole(event.tid if args.stream is None else args.stream) or 0
        link = (self._group(event.pid), _whole(args.correlation) or 0)
        size = _whole(args.bytes) or 0
        shape = message = None
        if kind == "kernel":
            shape = _shape(args)
            if is_communication(name):
                kind, message = "communication", _message(name, args)
        elif kind == "memcpy":
            name = _copy_name(name)
        else:
            name = "[CUDA memset]"
        self.trace.gpu.append(GpuOp(start, end, device, stream, kind, name, link, size, shape, message))

    def _named(self, event: TraceEvent) -> str:
        name = event.name
        return self.name(name) if isinstance(name, str) and name else "[unnamed]"

    def _thread(self, event: TraceEvent) -> int:
        pid, tid = event.pid, event.tid
        simple = type(pid) is int and type(tid) is int
        key = (pid, tid) if simple else (str(pid)[:80], str(tid)[:80])
        return self.threads.setdefault(key, len(self.threads))


def _pid(value: Any) -> int | str:
    return value if isinstance(value, int) else str(value)[:80]


def _category(raw: str) -> str:
    return raw[:80].lower()


def _copy_name(name: str) -> str:
    """`Memcpy HtoD (Pinned -> Device)` in the words that nsys uses too."""
    # ROCm also writes `CopyHostToDevice`.
    name = re.sub(r"^Copy(Host|Device)To(Host|Device)$", lambda m: f"Memcpy {m[1][0]}to{m[2][0]}", name)
    route = name.removeprefix("Memcpy ").partition(" ")
    ends = route[2].strip("()").lower().replace(" -> ", "→")
    label = next((full for short, full in _COPY.items() if short in route[0]), route[0])
    return f"[CUDA memcpy {label}] {ends or 'unknown→unknown'}"


def _shape(args: Args) -> LaunchShape | None:
    grid, block = _triple(args.grid), _triple(args.block)
    if grid is None or block is None:
        return None  # ROCm traces have neither
    # Kineto's own occupancy is rounded to whole percent; 0 means that it could not tell.
    share = number(args.occupancy)
    occupancy = min(share / 100, 1.0) if share else None
    return LaunchShape(grid, block, _whole(args.registers), _whole(args.shared), None, occupancy)


def _message(name: str, args: Args) -> Message:
    """Sizes as written by PyTorch 2.3 and later; older traces contain none."""
    dtype = str(args.dtype or "").lower()
    width = _DTYPE_BYTES.get(dtype) or _DTYPE_BYTES.get(dtype.partition("_")[0])
    elements = max(_whole(args.sent) or 0, _whole(args.received) or 0)
    label = str(args.collective or name)
    size = elements * width if elements and width else None
    return Message(collective(label), size, _whole(args.ranks), dtype[:40] or None)


def number(value: Any) -> float | None:
    """A finite number from the values that `load_json` returns."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if abs(result) < 1e300 else None


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value if -_WHOLE < value < _WHOLE else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    result = number(value)
    return int(result) if result is not None and abs(result) < 2**63 else None


def _triple(value: Any) -> tuple[int, int, int] | None:
    if isinstance(value, list) and len(value) == 3:
        x, y, z = value
        if isinstance(x, int) and isinstance(y, int) and isinstance(z, int) and x > 0 and y > 0 and z > 0:
            return (x, y, z)
    return None


def _devices(head: dict[str, Any]) -> list[ProfiledDevice]:
    devices = []
    listed = head.get("deviceProperties")
    for row in listed if isinstance(listed, list) else []:
        if isinstance(row, dict) and isinstance(row.get("id"), int):
            major, minor = row.get("computeMajor"), row.get("computeMinor")
            devices.append(
                ProfiledDevice(
                    index=row["id"],
                    name=clean(row.get("name", ""), 80) or None,
                    sms=_whole(row.get("numSms")),
                    memory_bytes=_whole(row.get("totalGlobalMem")),
                    compute_capability=f"{major}.{minor}"
                    if isinstance(major, int) and isinstance(minor, int)
                    else None,
                )
            )
    return devices[:64]


def _version(head: dict[str, Any]) -> str | None:
    parts = [
        f"{key} {head[key]}"
        for key in ("schemaVersion", "cuda_runtime_version", "hip_runtime_version")
        if head.get(key)
    ]
    return clean(", ".join(parts), 120) or None
