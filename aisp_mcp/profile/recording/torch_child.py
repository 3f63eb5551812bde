"""Run a script under torch.profiler and write the recording as JSON. Executed as a file, in a separate process.

    python torch_child.py all|range MODE FOLDER SCRIPT [ARG ...]      # mode off: only the time, without a recording

range: only from torch.cuda.profiler.start() to stop(). Writes trace.json (Kineto), operators.json, memory.json
(allocator history), uncounted.json (operators without FLOPs) and run.json, which contains the script's own exit code.
This file imports nothing of the package, so the user's interpreter need not have it.
"""

from __future__ import annotations

import gc
import json
import re
import runpy
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAX_OPERATORS = 2000
_FRAMES = 8  # of an allocation on the host
_PLACE = re.compile(r"(.*\.py)\((\d+)\): (.*)")
_MAX_HISTORY = 100_000
_MEMORY = "[memory]"  # name of an allocation in a trace


class TorchRecorder:
    """torch.profiler, and with mode memory the device allocator's history, between start and stop."""

    def __init__(self, mode: str, cuda: bool) -> None:
        from torch.profiler import ProfilerActivity, profile

        self.memory = cuda and mode == "memory"
        # Device history has its own stacks; on the host, they come from the interpreter's frames in the trace.
        stacks = mode == "modules" or (mode == "memory" and not cuda)
        self.state, self.begin, self.seconds, self.cuda = "new", 0.0, 0.0, cuda
        self.profiler = (
            None
            if mode == "off"
            else profile(
                activities=[ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else []),
                record_shapes=mode in ("full", "flops"),
                profile_memory=mode in ("full", "memory"),
                with_flops=mode == "flops",
                with_modules=mode == "modules",
                with_stack=stacks,
                experimental_config=_sync_events() if cuda else None,
            )
        )

    def start(self) -> None:
        import torch

        if self.state == "new":
            if self.memory:
                torch.cuda.memory._record_memory_history(max_entries=_MAX_HISTORY)
            if self.profiler is not None:
                self.profiler.start()
            # The profiler's start imports this for seconds. Without it, a script's first optimizer does, on this clock.
            import torch._inductor.config

            self.state, self.begin = "on", time.perf_counter()

    def stop(self) -> None:
        import torch

        if self.state == "on":
            if self.cuda:
                torch.cuda.synchronize()
            self.seconds = time.perf_counter() - self.begin
            if self.profiler is not None:
                self.profiler.stop()
            self.state = "done"


def _sync_events() -> Any:
    """Record the events that streams wait for, if this version of torch supports it."""
    from torch._C import _profiler

    try:
        return _profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None


def main() -> int:
    capture, mode, folder, script, *args = sys.argv[1:]
    import torch

    cuda = torch.cuda.is_available()
    recorder = TorchRecorder(mode, cuda)
    if capture == "range":  # as nsys and ncu do with --capture-range=cudaProfilerApi, but without a GPU too
        torch.cuda.profiler.start, torch.cuda.profiler.stop = recorder.start, recorder.stop
    else:
        recorder.start()
    outcome = _run(script, args)
    recorder.stop()
    gc.disable()  # hundreds of thousands of events are made from here on, and none is garbage
    out = Path(folder)
    if recorder.state == "done" and recorder.profiler is not None:
        recorder.profiler.export_chrome_trace(str(out / "trace.json"))
        summed = cuda or mode == "flops"  # what torch alone knows: which operator launched a kernel, and FLOPs
        write = _operators if summed else _host_operators
        _write(out / "operators.json", write(recorder.profiler, out / "trace.json"))
        if mode == "flops":
            _write(out / "uncounted.json", _uncounted(recorder.profiler.events(), cuda))
        if mode == "memory":
            _write(out / "memory.json", torch.cuda.memory._snapshot() if cuda else _host_memory(out / "trace.json"))
    elif recorder.state != "done" and outcome["error"] is None:
        outcome["error"] = "the range to record never began"
    facts = {"torch": torch.__version__, "cuda": cuda, "seconds": recorder.seconds, "compile": _compile()}
    _write(out / "run.json", {**outcome, **facts})
    return 0


def _run(script: str, args: list[str]) -> dict[str, Any]:
    """The script as if called from the shell, with its folder first on the path."""
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        reason = f"it ended with exit code {code}" if isinstance(stop.code, int) else str(stop.code)[:500]
        return {"exit_code": code, "error": None if code == 0 else reason}
    except BaseException as error:
        traceback.print_exc()
        return {"exit_code": 1, "error": f"{type(error).__name__}: {error}"[:500]}
    return {"exit_code": 0, "error": None}


def _operators(prof: Any, trace: Path) -> list[dict[str, Any]]:
    """Per operator: calls, and microseconds with and without children, on host and device."""
    from torch.autograd import DeviceType

    try:
        averages = prof.key_averages()
    except UnicodeDecodeError:  # with stacks, some names of freed generator frames are not text
        return _host_operators(prof, trace)
    rows = [
        {
            "name": row.key,
            "count": row.count,
            "host_us": round(row.cpu_time_total, 3),  # sums of whole nanoseconds
            "self_host_us": round(row.self_cpu_time_total, 3),
            "device_us": round(row.device_time_total, 3),
            "self_device_us": round(row.self_device_time_total, 3),
            "flops": row.flops or 0,
            "host_bytes": row.self_cpu_memory_usage,
            "device_bytes": row.self_device_memory_usage,
        }
        for row in averages
        # A range's projection on the device is not an operator: it spans all the range launched, including pauses.
        if not (getattr(row, "is_user_annotation", False) and row.device_type != DeviceType.CPU)
    ]
    rows.sort(key=lambda row: (-row["flops"], -(row["self_device_us"] + row["self_host_us"])))
    return rows[:_MAX_OPERATORS]


# Operators that compute nothing: they allocate, fill, view or copy. Without `aten::` and the underscores around it.
_MOVES = re.compile(
    r"alias|arange|as_strided|cat|chunk|clone|contiguous|copy|detach|embedding|empty(_like|_strided)?|expand|fill|flatten"
    r"|full(_like)?|gather|index_select|item|lift_fresh|local_scalar_dense|narrow|new_(empty|full|ones|zeros)|normal"
    r"|ones(_like)?|permute|pin_memory|rand(n|int)?(_like)?|random|reshape(_alias)?|resize|select|set|slice"
    r"|split(_with_sizes)?|(un)?squeeze|stack|t|to|to_copy|transpose|unbind|unfold|uniform|(unsafe_)?view(_as)?"
    r"|zeros?(_like)?"
)


def _uncounted(events: Any, cuda: bool) -> dict[str, Any]:
    """Operators without a formula in torch, with calls and own time, and the time of all operators, in microseconds.

    What a counted operator calls is part of it. Operators that mostly wait for others which they call are left out.
    """
    rows: dict[str, list[float]] = {}  # calls, own time, time with callees
    whole, kind = 0.0, "device" if cuda else "cpu"
    queue = [event for event in events if event.cpu_parent is None and event.device_type.name == "CPU"]
    while queue:
        event = queue.pop()
        own, spent = getattr(event, f"self_{kind}_time_total"), getattr(event, f"{kind}_time_total")
        if event.flops:
            whole += spent
            continue
        queue += event.cpu_children
        if "::" not in event.name or event.name.startswith("autograd::"):
            continue  # ranges, and nodes of autograd
        whole += own
        if not _MOVES.fullmatch(event.name.removeprefix("aten::").strip("_")):
            row = rows.setdefault(event.name, [0, 0.0, 0.0])
            row[:] = row[0] + 1, row[1] + own, row[2] + spent
    listed: list[list[Any]] = [[name, int(count), own] for name, (count, own, spent) in rows.items() if 2 * own > spent]
    return {"whole_us": whole, "rows": sorted(listed, key=lambda row: -row[2])[:_MAX_OPERATORS]}


def _host_operators(_: Any, trace: Path) -> list[dict[str, Any]]:
    """The host's part of the same table, from the written trace: torch's takes three to ten times as long.

    Memory counts for the innermost operator of its thread; what is allocated outside of all is a row of its own.
    """
    events = [e for e in _events(trace) if e.get("cat") in ("cpu_op", "user_annotation") or e.get("name") == _MEMORY]
    rows: dict[str, dict[str, Any]] = {}
    open_: dict[Any, list[tuple[float, str]]] = {}
    for event in sorted(events, key=lambda e: (float(e["ts"]), -float(e.get("dur", 0)))):
        begin, spent = float(event["ts"]), float(event.get("dur", 0))
        stack = open_.setdefault(event["tid"], [])
        while stack and stack[-1][0] <= begin:
            stack.pop()
        name = stack[-1][1] if stack and event["name"] == _MEMORY else event["name"]
        row = rows.setdefault(name, {"name": name, "count": 0, "host_us": 0.0, "self_host_us": 0.0, "host_bytes": 0})
        if event["name"] == _MEMORY:
            row["count"] += not stack
            row["host_bytes"] += event["args"]["Bytes"] if event["args"].get("Device Type") == 0 else 0
            continue
        caller = stack[-1][1] if stack else None
        stack.append((begin + spent, name))
        if caller == name:  # an overload that calls the other: one operator
            continue
        if caller is not None:
            rows[caller]["self_host_us"] -= spent
        row["count"] += 1
        row["host_us"] += spent
        row["self_host_us"] += spent
    for row in rows.values():
        row |= {name: round(row[name], 3) for name in ("host_us", "self_host_us")}  # sums of whole nanoseconds
    return sorted(rows.values(), key=lambda row: -row["self_host_us"])[:_MAX_OPERATORS]


def _events(trace: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(trace.read_text("utf-8", "replace"))["traceEvents"]
    return events


def _host_memory(trace: Path) -> dict[str, Any]:
    """Without a GPU: the host allocations of the trace, in the form of an allocator history."""
    events = _events(trace)
    rows = []
    for event, frames in _with_frames(events):
        args = event.get("args", {})
        size = args.get("Bytes")
        if args.get("Device Type") == 0 and size:
            rows.append(
                {
                    "action": "alloc" if size > 0 else "free_completed",
                    "addr": args.get("Addr", 0),
                    "size": abs(size),
                    "time_us": int(float(event["ts"])),
                    "frames": frames,
                }
            )
    rows.sort(key=lambda row: row["time_us"])
    marks = [
        {"stage": "START", "name": e["name"], "time_us": int(float(e["ts"]))}
        for e in events
        if e.get("cat") == "user_annotation"
    ]
    return {"device_traces": [rows], "segments": [], "external_annotations": marks}


def _with_frames(events: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each allocation with the Python frames around it, innermost first."""
    frames = [e for e in events if e.get("cat") == "python_function" or e.get("name") == _MEMORY]
    stacks: dict[Any, list[tuple[float, dict[str, Any]]]] = {}
    for event in sorted(frames, key=lambda e: (float(e["ts"]), -float(e.get("dur", 0)))):
        begin, stack = float(event["ts"]), stacks.setdefault(event["tid"], [])
        while stack and stack[-1][0] < begin:
            stack.pop()
        if event["name"] == _MEMORY:
            yield event, [frame for _, frame in stack[: -_FRAMES - 1 : -1]]
        elif match := _PLACE.match(event["name"]):
            frame = {"name": match[3], "filename": match[1], "line": int(match[2])}
            stack.append((begin + float(event["dur"]), frame))


def _compile() -> dict[str, Any] | None:
    """Counters of torch.compile, if the script used it."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return None
    from torch._dynamo import utils

    counters = utils.counters
    frames = counters.get("frames", {})
    metrics = [m for m in utils.get_compilation_metrics() if getattr(m, "co_name", None)]
    reasons = [str(m.recompile_reason) for m in metrics if getattr(m, "recompile_reason", None)]
    # At a break that cannot be bridged, as in a loop, Dynamo abandons the whole frame; it is in the second table.
    breaks = {**counters.get("unimplemented", {}), **counters.get("graph_break", {})}
    return {
        "frames": int(frames.get("ok", 0)),
        "graphs": int(counters.get("stats", {}).get("unique_graphs", 0)),
        "graph_breaks": [[str(k)[:500], int(v)] for k, v in breaks.items()],
        "recompile_reasons": reasons[:100],
        "compile_s": sum(float(getattr(m, "entire_frame_compile_time_s", 0) or 0) for m in metrics),
    }


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, default=str))


if __name__ == "__main__":
    raise SystemExit(main())
