"""Operators of a Kineto trace with the shapes, strides and types of their inputs (torch.profiler, record_shapes)."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.readers import kineto
from aisp_mcp.profile.readers.files import kind_of, look

_FIELDS = ("Input type", "Input Dims", "Input Strides", "Concrete Inputs")


@dataclass
class Operator:
    """One operator with one signature. types, dims, strides, concrete: one entry per argument, as Kineto writes them.

    calls: number of calls. device_us: time of the kernels that it started itself. host_us: its own and its callees'
    time. strides is None if the trace contains none (before PyTorch 2.3).
    """

    name: str
    types: list[str]
    dims: list[Any]
    strides: list[Any] | None
    concrete: list[str]
    calls: int = 0
    device_us: float = 0.0
    host_us: float = 0.0


def read(path: str | Path) -> list[Operator]:
    """Operators by device time, then by host time.

    Raises UsageError NO_SHAPES for a trace without shapes, such as one of nsys, and as load does.
    """
    file = look(path)
    kind = kind_of(file)
    if kind == "nsys":
        raise UsageError(
            "NO_SHAPES",
            f"{file.path.name!r} is an nsys trace: it names kernels, but contains no operators, shapes or types.",
            "Record with torch.profiler and record_shapes=True, or aisp profile torch with mode full.",
        )
    if kind != "kineto":
        raise UsageError("WRONG_KIND", f"{file.path.name!r} is {kind}; this needs a Kineto trace.", None)
    data = kineto.load_json(file)
    events = data.get("traceEvents", []) if isinstance(data, dict) else data
    events = [event for event in events if isinstance(event, dict)]
    device = _device_times(events)
    operators: dict[str, Operator] = {}
    for event in events:
        args = event.get("args")
        if event.get("cat") == "cpu_op" and isinstance(args, dict) and "Input Dims" in args:
            _add(operators, event, args, device)
    if not any(any(operator.dims) for operator in operators.values()):
        raise UsageError(
            "NO_SHAPES",
            f"{file.path.name!r} contains no shapes of operators' inputs.",
            "Record with record_shapes=True, or aisp profile torch with mode full.",
        )
    return sorted(operators.values(), key=lambda operator: (-operator.device_us, -operator.host_us, operator.name))


def _device_times(events: list[dict[str, Any]]) -> dict[Any, float]:
    """Microseconds of kernels by the External id of the operator that started them."""
    times: dict[Any, float] = defaultdict(float)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and isinstance(event.get("args"), dict):
            times[event["args"].get("External id")] += _number(event.get("dur"))
    return times


def _add(operators: dict[str, Operator], event: dict[str, Any], args: dict[str, Any], device: dict[Any, float]) -> None:
    name = str(event.get("name"))
    types, dims, strides, concrete = (args.get(field) for field in _FIELDS)
    if not isinstance(types, list) or not isinstance(dims, list) or len(types) != len(dims):
        return
    concrete = concrete if isinstance(concrete, list) and len(concrete) == len(types) else [""] * len(types)
    strides = strides if isinstance(strides, list) and len(strides) == len(types) else None
    key = json.dumps([name, types, dims, strides, concrete])
    operator = operators.setdefault(key, Operator(name, types, dims, strides, [str(text) for text in concrete]))
    operator.calls += 1
    operator.device_us += device.get(args.get("External id"), 0.0)
    operator.host_us += _number(event.get("dur"))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
