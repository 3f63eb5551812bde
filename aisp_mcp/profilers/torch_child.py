"""Run a script under torch.profiler and write what it saw as JSON. Executed as a file, in a process of its own.

    python torch_child.py MODE FOLDER SCRIPT [ARG ...]

Writes trace.json (Kineto), operators.json, memory.json (allocator history) and run.json. The script's own exit code is
kept in run.json. This file imports nothing of the package, so that the user's interpreter need not have it.
"""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

_MAX_OPERATORS = 2000
_MAX_HISTORY = 100_000


def main() -> int:
    mode, folder, script, *args = sys.argv[1:]
    import torch
    from torch.profiler import ProfilerActivity, profile

    cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    if cuda and mode == "memory":
        torch.cuda.memory._record_memory_history(max_entries=_MAX_HISTORY)
    options = {
        "record_shapes": mode in ("full", "flops"),
        "profile_memory": mode in ("full", "memory"),
        "with_flops": mode == "flops",
        "with_modules": mode == "modules",
        "with_stack": mode in ("memory", "modules"),
    }
    with profile(activities=activities, **options) as prof:
        outcome = _run(script, args)
        if cuda:
            torch.cuda.synchronize()
    out = Path(folder)
    prof.export_chrome_trace(str(out / "trace.json"))
    _write(out / "operators.json", _operators(prof))
    if mode == "memory":
        _write(out / "memory.json", torch.cuda.memory._snapshot() if cuda else _host_memory(out / "trace.json"))
    _write(out / "run.json", {**outcome, "torch": torch.__version__, "cuda": cuda, "compile": _compile()})
    return 0


def _run(script: str, args: list[str]) -> dict[str, Any]:
    """The script as if called from the shell, with its folder first on the path."""
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        return {"exit_code": code, "error": None if code == 0 else str(stop.code)}
    except BaseException as error:
        traceback.print_exc()
        return {"exit_code": 1, "error": f"{type(error).__name__}: {error}"[:500]}
    return {"exit_code": 0, "error": None}


def _operators(prof: Any) -> list[dict[str, Any]]:
    """Per operator: calls, and microseconds with and without children, on host and device."""
    rows = [
        {
            "name": row.key,
            "count": row.count,
            "host_us": row.cpu_time_total,
            "self_host_us": row.self_cpu_time_total,
            "device_us": row.device_time_total,
            "self_device_us": row.self_device_time_total,
            "flops": row.flops or 0,
            "host_bytes": row.self_cpu_memory_usage,
            "device_bytes": row.self_device_memory_usage,
        }
        for row in prof.key_averages()
    ]
    rows.sort(key=lambda row: -(row["self_device_us"] + row["self_host_us"]))
    return rows[:_MAX_OPERATORS]


def _host_memory(trace: Path) -> dict[str, Any]:
    """Without a GPU: the host allocations that the trace holds, in the form of an allocator history."""
    events = json.loads(trace.read_text())["traceEvents"]
    rows = []
    for event in events:
        args = event.get("args", {})
        size = args.get("Bytes")
        if event.get("name") == "[memory]" and args.get("Device Type") == 0 and size:
            action = "alloc" if size > 0 else "free_completed"
            rows.append(
                {
                    "action": action,
                    "addr": args.get("Addr", 0),
                    "size": abs(size),
                    "time_us": int(float(event["ts"])),
                    "frames": [],
                }
            )
    rows.sort(key=lambda row: row["time_us"])
    marks = [
        {"stage": "START", "name": e["name"], "time_us": int(float(e["ts"]))}
        for e in events
        if e.get("cat") == "user_annotation" and ("ProfilerStep" in e["name"] or "zero_grad" in e["name"])
    ]
    return {"device_traces": [rows], "segments": [], "external_annotations": marks}


def _compile() -> dict[str, Any] | None:
    """What torch.compile counted, if the script used it."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return None
    from torch._dynamo import utils

    counters = utils.counters
    frames = counters.get("frames", {})
    metrics = [m for m in utils.get_compilation_metrics() if getattr(m, "co_name", None)]
    reasons = [str(m.recompile_reason) for m in metrics if getattr(m, "recompile_reason", None)]
    return {
        "frames": int(frames.get("ok", 0)),
        "graphs": int(counters.get("stats", {}).get("unique_graphs", 0)),
        "graph_breaks": [[str(k)[:500], int(v)] for k, v in counters.get("graph_break", {}).items()],
        "recompile_reasons": reasons[:100],
        "compile_s": sum(float(getattr(m, "entire_frame_compile_time_s", 0) or 0) for m in metrics),
    }


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, default=str))


if __name__ == "__main__":
    raise SystemExit(main())
