"""AMD's rocprofv3 (CSV tables and JSON) and rocprof (results CSV), to the common timeline."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.profile.readers.allowance import collector_held
from aisp_mcp.profile.readers.files import ProfileFile, bad, look, read
from aisp_mcp.profile.readers.kineto import load_json
from aisp_mcp.profile.readers.text import clean
from aisp_mcp.profile.records import ProfiledDevice
from aisp_mcp.profile.timeline.events import GpuOp, HostCall, HostRange, LaunchShape, Message, OpKind
from aisp_mcp.profile.timeline.names import collective, is_communication
from aisp_mcp.profile.timeline.trace import Trace

_TABLES = ("kernel_trace", "hip_api_trace", "memory_copy_trace", "marker_api_trace")
_APART_NS = 3600 * 10**9  # tables of one run share a clock, and overlap
_GPU = 2  # the type of an agent
Row = dict[str, str]


@collector_held()
def read_trace(file: ProfileFile) -> Trace:
    """The file's content, and the neighbouring tables that rocprofv3 wrote in the same run.

    Raises UsageError BAD_PROFILE, AispError TOO_LARGE.
    """
    trace = Trace(file.source("rocprof", "rocprof", None))
    if file.head.lstrip()[:1] == b"{":
        _json(load_json(file), trace)
    else:
        for table in _tables(file):
            _join(table, file, trace)
    if not trace.gpu and not trace.api and not trace.ranges:
        raise bad(f"{file.path.name!r} contains no dispatch, copy or call.", "Record with `rocprofv3 --sys-trace`.")
    if not trace.api:
        trace.diagnostics.append("Reader: the file contains no HIP calls, so gaps have no cause (record --hip-trace).")
    return trace


def _tables(file: ProfileFile) -> Iterator[ProfileFile]:
    yield file
    stem = next((t for t in _TABLES if file.path.name.endswith(f"{t}.csv")), None)
    for table in _TABLES if stem else ():
        neighbour = file.path.with_name(file.path.name.replace(f"{stem}.csv", f"{table}.csv"))
        if table != stem and Path(neighbour).is_file():
            yield look(neighbour)


def _join(table: ProfileFile, file: ProfileFile, trace: Trace) -> None:
    """Add a table if it is the file itself or its times are near the file's: names alone do not identify a run."""
    if table.path == file.path:
        _csv(table, trace)
        return
    more = Trace(trace.source)
    _csv(table, more)
    span, other_span = _span(trace), _span(more)
    if span and other_span and max(span[0] - other_span[1], other_span[0] - span[1]) > _APART_NS:
        trace.diagnostics.append(f"Reader: {table.path.name} is of another run: its times are far from this file's.")
        return
    for name in ("gpu", "api", "ranges"):
        rows = getattr(trace, name)
        for event in getattr(more, name):
            rows.append(event)
    trace.diagnostics.append(f"Reader: {table.path.name} of the same run was read too.")


def _span(trace: Trace) -> tuple[int, int] | None:
    starts = [*trace.gpu.start, *trace.api.start, *(row.start for row in trace.ranges)]
    ends = [*trace.gpu.end, *trace.api.end, *(row.end for row in trace.ranges)]
    return (min(starts), max(ends)) if starts else None


def _csv(file: ProfileFile, trace: Trace) -> None:
    rows = csv.DictReader(io.StringIO(read(file).decode("utf-8", "replace"), newline=""))
    try:
        for row in rows:
            if "Kernel_Name" in row or "KernelName" in row:
                _kernel(row, trace)
            elif "Function" in row:
                _call(row, trace)
            elif "Direction" in row:
                _copy(row, trace)
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        text = f"{file.path.name!r} is damaged: line {rows.line_num} lacks {clean(error, 80)}."
        raise bad(text, "Record again with `rocprofv3 --kernel-trace --hip-trace --output-format csv`.") from error


def _kernel(row: Row, trace: Trace) -> None:
    """A dispatch of rocprofv3, or of its predecessor rocprof, which counts grids in work-items; here they are in
    blocks.
    """
    old = "KernelName" in row
    start, end = (int(row[key]) for key in (("BeginNs", "EndNs") if old else ("Start_Timestamp", "End_Timestamp")))
    name = clean(row["KernelName" if old else "Kernel_Name"].removesuffix(".kd"))
    device = _index(row["gpu-id"] if old else row["Agent_Id"])
    stream = int(row["queue-id"] if old else row.get("Stream_Id") or row["Queue_Id"])
    link = (0, 0 if old else int(row["Correlation_Id"]))
    _dispatch(trace, start, end, device, stream, name, link, None if old else _shape(row))


def _dispatch(
    trace: Trace,
    start: int,
    end: int,
    device: int,
    stream: int,
    name: str,
    link: tuple[int, int],
    shape: LaunchShape | None,
) -> None:
    comm = is_communication(name)
    message = Message(collective(name), None, None, None) if comm else None
    kind: OpKind = "communication" if comm else "kernel"
    trace.gpu.append(GpuOp(start, end, device, stream, kind, name, link, 0, shape, message))


def _shape(row: Row) -> LaunchShape | None:
    sizes = [[int(row.get(f"{what}_Size_{axis}") or 0) for axis in "XYZ"] for what in ("Grid", "Workgroup")]
    if min(*sizes[0], *sizes[1]) <= 0:
        return None
    registers = int(row.get("VGPR_Count") or 0) + int(row.get("Accum_VGPR_Count") or 0)
    return _blocks(sizes[0], sizes[1], registers or None, int(row.get("LDS_Block_Size") or 0), row.get("Scratch_Size"))


def _blocks(grid: list[int], block: list[int], registers: int | None, shared: int, scratch: Any) -> LaunchShape:
    x, y, z = (-(-items // width) for items, width in zip(grid, block, strict=True))
    return LaunchShape((x, y, z), (block[0], block[1], block[2]), registers, shared, int(scratch or 0), None)


def _call(row: Row, trace: Trace) -> None:
    start, end, thread = int(row["Start_Timestamp"]), int(row["End_Timestamp"]), int(row["Thread_Id"])
    name = clean(row["Function"])
    if row.get("Domain", "").startswith("MARKER"):
        trace.ranges.append(HostRange(start, end, thread, name))
    else:
        trace.api.append(HostCall(start, end, thread, name, (0, int(row["Correlation_Id"]))))


def _copy(row: Row, trace: Trace) -> None:
    ends = [row["Source_Agent_Id"], row["Destination_Agent_Id"]]
    link = (0, int(row["Correlation_Id"]))
    start, end = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
    _memcpy(trace, row["Direction"], start, end, max(map(_index, ends)), link, 0)


def _memcpy(trace: Trace, direction: str, start: int, end: int, device: int, link: tuple[int, int], size: int) -> None:
    words = direction.upper().removeprefix("MEMORY_COPY_").split("_TO_")
    label = "-to-".join(word.capitalize() for word in words) if len(words) == 2 else "Unknown"
    name = f"[CUDA memcpy {label}] unknown→unknown"
    trace.gpu.append(GpuOp(start, end, device, -1, "memcpy", name, link, size))


def _index(text: str) -> int:
    digits = "".join(c for c in str(text) if c.isdigit())
    return int(digits[:9]) if digits else 0


def _json(top: Any, trace: Trace) -> None:
    """The records of every process in the file."""
    try:
        for tool in top["rocprofiler-sdk-tool"]:
            _process(tool, trace)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise bad(
            f"The rocprofv3 JSON does not follow its format: {clean(error, 100)}.", "Record again with rocprofv3."
        ) from error


def _process(tool: dict[str, Any], trace: Trace) -> None:
    symbols = {
        s["kernel_id"]: clean(s.get("formatted_kernel_name") or s["kernel_name"]) for s in tool["kernel_symbols"]
    }
    facts = {s["kernel_id"]: s for s in tool["kernel_symbols"]}
    gpus = {a["id"]["handle"]: at for at, a in enumerate(a for a in tool["agents"] if a["type"] == _GPU)}
    trace.devices += [_device(gpus[a["id"]["handle"]], a) for a in tool["agents"] if a["type"] == _GPU]
    pid, records = int(tool["metadata"]["pid"]), tool["buffer_records"]
    for row in records.get("kernel_dispatch", ()):
        info, symbol = row["dispatch_info"], facts.get(row["dispatch_info"]["kernel_id"], {})
        grid, block = ([info[f"{what}_size"][axis] for axis in "xyz"] for what in ("grid", "workgroup"))
        registers = (symbol.get("arch_vgpr_count") or 0) + (symbol.get("accum_vgpr_count") or 0)
        shape = _blocks(grid, block, registers or None, info["group_segment_size"], info["private_segment_size"])
        stream = row.get("stream_id", {}).get("handle") or info["queue_id"]["handle"]
        name = symbols.get(info["kernel_id"], f"[kernel {info['kernel_id']}]")
        device = gpus.get(info["agent_id"]["handle"], 0)
        _dispatch(trace, *_times(row), device, stream, name, (pid, row["correlation_id"]["internal"]), shape)
    kinds = tool["strings"]["buffer_records"]
    for row in records.get("hip_api", ()):
        name = clean(kinds[row["kind"]]["operations"][row["operation"]])
        link = (pid, row["correlation_id"]["internal"])
        trace.api.append(HostCall(*_times(row), row["thread_id"], name, link))
    for row in records.get("memory_copy", ()):
        direction = kinds[row["kind"]]["operations"][row["operation"]]
        ends = [row[f"{end}_agent_id"]["handle"] for end in ("dst", "src")]
        device = next((gpus[end] for end in ends if end in gpus), 0)
        link = (pid, row["correlation_id"]["internal"])
        _memcpy(trace, direction, *_times(row), device, link, row.get("bytes", 0))


def _times(row: dict[str, Any]) -> tuple[int, int]:
    return int(row["start_timestamp"]), int(row["end_timestamp"])


def _device(index: int, agent: dict[str, Any]) -> ProfiledDevice:
    name = clean(agent.get("product_name") or agent.get("name") or "", 80)
    return ProfiledDevice(
        index=index, name=name if name.startswith("AMD") else f"AMD {name}".strip(), sms=agent.get("cu_count") or None
    )
