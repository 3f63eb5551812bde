"""Nsight Systems: the SQLite export of any version, read through its own schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from aisp_mcp.profile.readers.allowance import collector_held
from aisp_mcp.profile.readers.database import ReportDatabase, open_database
from aisp_mcp.profile.readers.files import ProfileFile, bad, look
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import ProfiledDevice
from aisp_mcp.profile.timeline.columns import CallFact, Calls, OpFact, Ops
from aisp_mcp.profile.timeline.events import HostRange, LaunchShape, Message, StreamWait
from aisp_mcp.profile.timeline.names import collective, is_communication
from aisp_mcp.profile.timeline.occupancy import theoretical
from aisp_mcp.profile.timeline.trace import Trace

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_OWN = ("TARGET_INFO_", "EXPORT_META_DATA", "OSRT_", "SCHED_EVENTS", "ENUM_NSYS_", "COMPOSITE_EVENTS", "ANALYSIS_")
_PID, _PID_MASK = 24, 0xFFFFFF  # of a globalPid
_PROCESS = 0xFFFFFFFFFF000000  # globalTid without the thread
_RANGES = (59, 60, 70, 71)  # push/pop and start/end, of NVTX and of its text form
_DOMAIN = 75
# CUpti_ActivityMemcpyKind and nsys's own kinds of migration, for exports without the table that names them (2022).
_COPY_LABELS = {1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host", 5: "Array-to-Array"}
_COPY_LABELS |= {6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host"}
_COPY_LABELS |= {10: "Peer-to-Peer", 11: "Unified Host-to-Device", 12: "Unified Device-to-Host"}
_COPY_LABELS |= {13: "Unified Device-to-Device"}
_SYNCS = {1: "Event sync", 2: "Stream wait sync", 3: "Stream sync", 4: "Context sync"}
_STREAM_WAIT = 2
_MAX_COPIES = 8  # from a captured node to its copies: one for an instantiated graph, more for graphs inside graphs
_KINDS = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device", 6: "managed"}


@collector_held()
def read(path: str | Path | ProfileFile) -> Trace:
    """Read a whole export. Raises NotFound, UsageError BAD_PROFILE, AispError TOO_LARGE."""
    file = path if isinstance(path, ProfileFile) else look(path)
    with open_database(file) as db:
        reader = _ExportReader(db)
        if not any(name.startswith(_CUPTI) or name == "NVTX_EVENTS" for name in db.columns):
            _refuse(file.path.name, sorted(db.columns))
        meta = {str(k): clean(v or "", 200) for k, v in db.rows("META_DATA_EXPORT", "name value")}
        trace = Trace(file.source("nsys", "Nsight Systems", meta.get("EXPORT_PRODUCT_VERSION")))
        trace.devices = reader.devices()
        trace.ranges = reader.ranges()
        trace.gpu, trace.api = reader.gpu(reader.captured(trace.ranges)), reader.api()
        trace.syncs, trace.waits = reader.syncs(), reader.waits()
        trace.bounds = reader.bounds()
        trace.diagnostics, trace.faults = reader.diagnostics(), reader.faults()
    return trace


def _refuse(name: str, tables: list[str]) -> NoReturn:
    """Refuse a database that has neither CUDA nor NVTX, by its tables."""
    own = [table for table in tables if table.startswith(_OWN)]
    if "StringIds" in tables and own:
        events = [table for table in own if not table.startswith("ENUM_")]
        raise bad(
            f"{name!r} is an nsys export without CUDA and NVTX events; it has {', '.join((events or own)[:8])}.",
            "Record again with `nsys profile -t cuda,nvtx`, then export again.",
        )
    raise bad(
        f"{name!r} is SQLite, but not an nsys export: it has none of nsys's tables.",
        f"Its tables: {', '.join(tables[:8]) or 'none'}. An nsys export comes from `nsys export --type sqlite`.",
    )


_LAUNCH = "gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory"


class _Context(NamedTuple):
    process: int
    device: int
    stream: int


class _Numbers(dict[tuple[Any, ...], int]):
    """Numbers for the content of rows, assigned at first occurrence."""

    def __init__(self, make: Callable[..., int]) -> None:
        self._make = make

    def __missing__(self, row: tuple[Any, ...]) -> int:
        index = self[row] = self._make(*row)
        return index


class _Devices:
    """GPUs by (process, ordinal): CUDA_VISIBLE_DEVICES gives each process ordinals of its own.

    A GPU's index is its ordinal, or, if processes number them differently, its number in the export.
    """

    def __init__(self, db: ReportDatabase, gpus: dict[int, dict[str, Any]]) -> None:
        table = "TARGET_INFO_CUDA_DEVICE"
        rows = list(db.rows(table, "gpuId cudaId pid", "gpuId cudaId"))
        self._several = len(gpus) > 1
        self._gpu_of = {(pid if isinstance(pid, int) else None, cuda): gpu for gpu, cuda, pid in rows}
        self._by_ordinal: dict[int, set[int]] = {}
        ordinals: dict[int, set[int]] = {}
        for gpu, cuda, _ in rows:
            self._by_ordinal.setdefault(cuda, set()).add(gpu)
            ordinals.setdefault(gpu, set()).add(cuda)
        self._physical = any(len(several) > 1 for several in (*self._by_ordinal.values(), *ordinals.values()))
        self._seen: dict[tuple[int, int], int] = {}
        self._unknown: dict[tuple[int, int], int] = {}
        self._first_unknown = 1 + max([*gpus, *self._by_ordinal], default=0)
        linked = {cuda: gpus[gpu] for gpu, cuda, _ in rows if gpu in gpus}
        self.described = gpus if self._physical or not linked else linked

    def index(self, process: int, ordinal: int) -> int:
        key = (process, ordinal)
        if key not in self._seen:
            self._seen[key] = self._find(process, ordinal)
        return self._seen[key]

    def _find(self, process: int, ordinal: int) -> int:
        if not self._physical:
            return ordinal
        several = self._by_ordinal.get(ordinal, set())
        gpu = self._gpu_of.get((process >> _PID & _PID_MASK, ordinal))
        if gpu is None and len(several) == 1:
            gpu = next(iter(several))
        if gpu is None:
            gpu = self._unknown.setdefault((process, ordinal), self._first_unknown + len(self._unknown))
        return gpu

    def faults(self) -> list[str]:
        """Which processes' devices cannot be joined to a GPU."""
        if self._unknown:
            named = ", ".join(f"device {cuda} of process {pid >> _PID & _PID_MASK}" for pid, cuda in self._unknown)
            return [f"The export does not say which GPU is {clean(named, 200)}: each counts as a GPU of its own."]
        by_index: dict[int, set[int]] = {}
        for (process, _), index in self._seen.items():
            by_index.setdefault(index, set()).add(process)
        told = all((process >> _PID & _PID_MASK, ordinal) in self._gpu_of for process, ordinal in self._seen)
        shared = sorted(index for index, processes in by_index.items() if len(processes) > 1)
        if told or not shared or not self._several:
            return []
        which = ", ".join(map(str, shared[:8]))
        return [
            f"Several processes use device {which}; the export does not say whether that is one GPU: counted as one."
        ]


class _ExportReader:
    """One open export."""

    def __init__(self, db: ReportDatabase) -> None:
        self.db = db
        self._strings = {i: value for i, value in db.rows("StringIds", "id value", "id")}
        self.name = lru_cache(maxsize=65_536)(self._name)
        self._gpu = self._device_rows()
        self._devices = _Devices(db, self._gpu)

    def _name(self, key: Any) -> str:
        return clean(self._strings.get(key) or f"[unnamed {key}]")

    def _device_rows(self) -> dict[int, dict[str, Any]]:
        keys = (
            "id name smCount totalMemory memoryBandwidth computeMajor computeMinor maxWarpsPerSm maxBlocksPerSm "
            "maxRegistersPerSm maxShmemPerSm"
        )
        return {
            row[0]: dict(zip(keys.split(), row, strict=True)) for row in self.db.rows("TARGET_INFO_GPU", keys, "id")
        }

    def devices(self) -> list[ProfiledDevice]:
        return [
            ProfiledDevice(
                index=cuda,
                name=clean(row["name"] or "", 80) or None,
                sms=_int(row["smCount"]),
                memory_bytes=_int(row["totalMemory"]),
                bandwidth_bytes_per_s=_int(row["memoryBandwidth"]),
                compute_capability=_capability(row["computeMajor"], row["computeMinor"]),
            )
            for cuda, row in sorted(self._devices.described.items())
        ]

    def captured(self, ranges: Sequence[HostRange]) -> dict[tuple[int, int], tuple[str, ...]]:
        """By process and node of a CUDA graph: the ranges that were open on the thread that captured it.

        A node of an instantiated graph is a copy of the captured one.
        """
        columns = "start globalTid graphNodeId originalGraphNodeId"
        made: dict[tuple[int, int], tuple[int, int]] = {}
        original: dict[tuple[int, int], int] = {}
        for start, tid, node, copied in self.db.rows("CUDA_GRAPH_NODE_EVENTS", columns, "start globalTid graphNodeId"):
            key = (tid & _PROCESS, node)
            if isinstance(copied, int) and copied != node:
                original[key] = copied
            else:
                made.setdefault(key, (tid, start))
        moments = {}
        for process, node in {*made, *original}:
            first = node
            for _ in range(_MAX_COPIES):
                first = original.get((process, first), first)
            if (process, first) in made:
                moments[process, node] = made[process, first]
        opened = _open_ranges(ranges, set(moments.values()))
        return {key: opened[moment] for key, moment in moments.items()}

    def gpu(self, captured: Mapping[tuple[int, int], tuple[str, ...]]) -> Ops:
        """Kernels, whole CUDA graphs (if the trace was made without --cuda-graph-trace=node), copies and memsets."""
        ops = Ops()
        # Newer drivers report 0 local memory for all kernels, even those that spill: then it is unknown.
        has_local = self.db.positive(_CUPTI + "KERNEL", "localMemoryPerThread")
        limits, labels = self._devices.described, {**_COPY_LABELS, **self.db.enum("ENUM_CUDA_MEMCPY_OPER")}
        shape = lru_cache(maxsize=65_536)(lambda device, *launch: _shape(limits.get(device, {}), *launch))

        def kernel(full: Any, short: Any, registers: Any, local: Any, at: _Context, *launch: int) -> OpFact:
            name = self.name(full if full in self._strings else short)
            comm = is_communication(name)
            sizes = shape(at.device, *launch, registers, local if has_local else None)
            message = Message(collective(name), None, None, None) if comm else None
            return OpFact(
                at.device, at.stream, "communication" if comm else "kernel", name, at.process, 0, sizes, message
            )

        def graph(at: _Context, number: int) -> OpFact:
            return OpFact(at.device, at.stream, "kernel", f"[CUDA graph {number}]", at.process, 0, None, None)

        def copy(kind: Any, source: Any, target: Any, at: _Context, size: int) -> OpFact:
            route = f" {_KINDS.get(source, 'unknown')}→{_KINDS.get(target, 'unknown')}"
            name = clean(f"[CUDA memcpy {labels.get(kind, 'Unknown')}]{route}", 120)
            return OpFact(at.device, at.stream, "memcpy", name, at.process, size, None, None)

        def memset(at: _Context, size: int) -> OpFact:
            return OpFact(at.device, at.stream, "memset", "[CUDA memset]", at.process, size, None, None)

        self._ops(
            ops, "KERNEL", "demangledName shortName registersPerThread localMemoryPerThread", _LAUNCH, kernel, captured
        )
        self._ops(ops, "GRAPH_TRACE", "", "graphId", graph, captured)
        self._ops(ops, "MEMCPY", "copyKind srcKind dstKind", "bytes", copy, captured)
        self._ops(ops, "MEMSET", "", "bytes", memset, captured)
        return ops

    def _ops(
        self,
        ops: Ops,
        table: str,
        values: str,
        numbers: str,
        fact: Callable[..., OpFact],
        captured: Mapping[tuple[int, int], tuple[str, ...]],
    ) -> None:
        split = len(values.split())

        def number_of(*row: Any) -> int:
            process, ordinal, stream, node, *rest = map(_zero, row[split:])
            context = _Context(process, self._devices.index(process, ordinal), stream)
            found = fact(*row[:split], context, *rest)
            return ops.intern(found._replace(captured=captured.get((process, node))) if node else found)

        self._events(ops, table, f"{values} globalPid deviceId streamId graphNodeId {numbers}", number_of)

    def api(self) -> Calls:
        calls = Calls()

        def number_of(key: Any, tid: Any) -> int:
            return calls.intern(CallFact(_zero(tid), _zero(tid) & _PROCESS, self.name(key)))

        self._events(calls, "RUNTIME", "nameId globalTid", number_of)
        return calls

    def _events(self, events: Ops | Calls, table: str, values: str, add: Callable[..., int]) -> None:
        """Rows of a table. add: returns the number of a row's record, from its values other than times and link."""
        numbers = _Numbers(add)
        columns = f"start end correlationId {values}"
        for part in self.db.parts(_CUPTI + table, columns, "start end", columns):
            start, end, link, *rest = zip(*part, strict=True)
            number = map(_zero, link) if None in link else link
            events.extend(start, end, number, map(numbers.__getitem__, zip(*rest, strict=True)))

    def syncs(self) -> list[tuple[str, int]]:
        labels = {**_SYNCS, **self.db.enum("ENUM_CUPTI_SYNC_TYPE")}
        rows = self.db.rows(_CUPTI + "SYNCHRONIZATION", "start end syncType", "start end")
        return [(clean(labels.get(kind, f"type {kind}"), 80), end - start) for start, end, kind in rows]

    def waits(self) -> list[StreamWait]:
        columns = "syncType deviceId streamId correlationId globalPid"
        rows = self.db.rows(_CUPTI + "SYNCHRONIZATION", columns, "syncType streamId correlationId")
        return [
            StreamWait(self._devices.index(_zero(pid), _zero(device)), stream, (_zero(pid), link))
            for kind, device, stream, link, pid in rows
            if kind == _STREAM_WAIT
        ]

    def ranges(self) -> list[HostRange]:
        columns = "start end eventType globalTid endGlobalTid text textId domainId"
        rows = list(self.db.rows("NVTX_EVENTS", columns, "start"))
        domains = {
            (_zero(tid) & _PROCESS, domain): text for _, _, kind, tid, _, text, _, domain in rows if kind == _DOMAIN
        }
        # A range left open lasts until the last time of any range.
        last = max((max(row[0], row[1] if isinstance(row[1], int) else row[0]) for row in rows), default=0)
        host_ranges = []
        for start, end, kind, tid, end_tid, text, text_id, domain in rows:
            if kind not in _RANGES or end_tid is not None:
                continue
            name = clean(self._strings.get(text_id) or text or "[unnamed]", 512)
            prefix = domains.get((_zero(tid) & _PROCESS, domain))
            name = f"{clean(prefix, 120)}:{name}" if prefix else name
            host_ranges.append(HostRange(start, end if isinstance(end, int) else last, _zero(tid), name))
        return host_ranges

    def bounds(self) -> tuple[int, int] | None:
        row = next(self.db.rows("ANALYSIS_DETAILS", "duration startTime", "duration"), None)
        return (0, row[0]) if row and row[0] > 0 else None

    def diagnostics(self) -> list[str]:
        """Warnings and errors of the profiler itself."""
        levels = self.db.enum("ENUM_DIAGNOSTIC_SEVERITY_LEVEL") or {2: "Warning", 3: "Error"}
        messages = [
            f"{levels[severity]}: {clean(text or '', 300)}"
            for severity, text in self.db.rows("DIAGNOSTIC_EVENT", "severity text", "severity")
            if levels.get(severity) in ("Warning", "Error")
            or "dropped" in str(text).lower()
            or "mismatch" in str(text).lower()
        ]
        if self.db.count(_CUPTI + "GRAPH_TRACE"):
            messages.append(
                "Reader: CUDA graphs are recorded as a whole; `nsys profile --cuda-graph-trace=node` shows the kernels "
                "inside."
            )
        return list(dict.fromkeys(messages))[:50]

    def faults(self) -> list[str]:
        """Sentences about rows that the reader could not use or join."""
        faults = self._devices.faults()
        for table in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"):
            odd = self.db.count(_CUPTI + table) - self.db.count(_CUPTI + table, "start end")
            if odd:
                faults.append(f"{odd:,} rows of {table} have times that are not integers: left out.")
        return faults


def _shape(limits: dict[str, Any], *launch: Any) -> LaunchShape | None:
    gx, gy, gz, bx, by, bz, static, dynamic, registers, local = launch
    if min(gx, gy, gz, bx, by, bz) <= 0:
        return None
    shared = static + dynamic
    occupancy = theoretical(
        bx * by * bz,
        _zero(registers),
        shared,
        _int(limits.get("maxWarpsPerSm")),
        _int(limits.get("maxBlocksPerSm")),
        _int(limits.get("maxRegistersPerSm")),
        _int(limits.get("maxShmemPerSm")),
    )
    return LaunchShape((gx, gy, gz), (bx, by, bz), _int(registers), shared, _int(local), occupancy)


def _open_ranges(ranges: Sequence[HostRange], moments: set[tuple[int, int]]) -> dict[tuple[int, int], tuple[str, ...]]:
    """By moment, which is a thread and a time: names of the ranges open then and there, outermost first."""
    by_thread: dict[int, list[HostRange]] = {}
    for each in ranges:
        by_thread.setdefault(each.thread, []).append(each)
    opened: dict[tuple[int, int], tuple[str, ...]] = {}
    for thread in {thread for thread, _ in moments}:
        rows, stack, at = sorted(by_thread.get(thread, ()), key=lambda each: (each.start, -each.end)), [], 0
        for time in sorted(time for other, time in moments if other == thread):
            while at < len(rows) and rows[at].start <= time:
                stack.append(rows[at])
                at += 1
            stack = [each for each in stack if each.end > time]
            opened[thread, time] = tuple(dict.fromkeys(each.name for each in stack))
    return opened


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _zero(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _capability(major: Any, minor: Any) -> str | None:
    return f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else None
