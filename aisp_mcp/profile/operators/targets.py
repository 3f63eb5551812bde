"""Operators of a Kineto trace (torch.profiler, record_shapes) as benchmark targets with their recorded shapes, strides
and types.
"""

from __future__ import annotations

import fnmatch
import json
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import BenchmarkError, NotFound, UsageError
from aisp_mcp.process import isolation, python
from aisp_mcp.process.run import run
from aisp_mcp.profile.operators.aten import MARK
from aisp_mcp.profile.operators.records import Coverage, Traced, TracedTarget
from aisp_mcp.profile.readers import kineto
from aisp_mcp.profile.readers.files import kind_of, look
from aisp_mcp.suites.adapters.base import identifier

DESCRIBE_S = 300.0
CHAPTER = "traced"


def targets(trace: str, pattern: str, top: int, folder: Path) -> Traced:
    """Write a target for each of the top operators that match. Raises NotFound NO_OPERATOR, UsageError NO_SHAPES."""
    known = read(trace)
    chosen = [operator for operator in known if fnmatch.fnmatchcase(operator.name, pattern)]
    if not chosen:
        names = Counter(operator.name for operator in known if operator.name.startswith("aten::"))
        raise NotFound(
            "NO_OPERATOR",
            f"No operator of the trace matches {pattern[:60]!r}.",
            f"The trace contains, among others: {', '.join(name for name, _ in names.most_common(8))}.",
        )
    described = describe(chosen)
    texts = [(operator, answer["text"]) for operator, answer in zip(chosen, described, strict=True) if "text" in answer]
    chapter = folder / CHAPTER
    chapter.mkdir(parents=True, exist_ok=True)
    written = [_write(chapter, operator, text, at) for at, (operator, text) in enumerate(texts[:top])]
    return Traced(folder=str(folder), targets=written, coverage=_coverage(chosen, described))


def describe(chosen: list[Operator]) -> list[dict[str, Any]]:
    """The text of a target, or the reason why there is none, for each. Raises BenchmarkError RECORDING_FAILED."""
    with tempfile.TemporaryDirectory(prefix="aisp-operators-") as temporary:
        file = Path(temporary).resolve() / "signatures.json"
        file.write_text(json.dumps([asdict(operator) for operator in chosen]), "utf-8")
        argv = [*python.module("aisp_mcp.profile.operators.aten"), str(file)]
        done = run(isolation.wrap(argv, isolation.demand("auto")), timeout_s=DESCRIBE_S, cwd="/", max_output=64 * 2**20)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        tail = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise BenchmarkError("RECORDING_FAILED", f"The operators could not be looked up in torch: {tail}.")
    answer: list[dict[str, Any]] = json.loads(lines[-1].removeprefix(MARK))
    return answer


def _write(chapter: Path, operator: Operator, text: str, at: int) -> TracedTarget:
    name = f"{identifier(operator.name.partition('::')[2])}_{at}"
    file = chapter / f"baseline_{name}.py"
    file.write_text(text, "utf-8")
    return TracedTarget(
        target=f"{CHAPTER}:{name}",
        operator=operator.name,
        inputs=[f"{kind} {dims}" for kind, dims in zip(operator.types, operator.dims, strict=True) if dims],
        calls=operator.calls,
        device_us=operator.device_us,
        host_us=operator.host_us,
        file=str(file),
    )


def _coverage(chosen: list[Operator], described: list[dict[str, Any]]) -> Coverage:
    good = [operator for operator, answer in zip(chosen, described, strict=True) if "text" in answer]
    device = sum(operator.device_us for operator in chosen)
    return Coverage(
        signatures=len(chosen),
        targets=len(good),
        calls_share=sum(operator.calls for operator in good) / sum(operator.calls for operator in chosen),
        device_share=sum(operator.device_us for operator in good) / device if device else None,
        reasons=dict(Counter(answer["reason"] for answer in described if "reason" in answer).most_common(12)),
    )


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
    """Operators by device time, then by host time. Raises as events and operators do."""
    return operators(events(path), Path(path).name)


def events(path: str | Path) -> list[dict[str, Any]]:
    """Events of a Kineto trace. Raises UsageError NO_SHAPES for a trace of nsys, WRONG_KIND, and as load does."""
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
    found = data.get("traceEvents", []) if isinstance(data, dict) else data
    return [event for event in found if isinstance(event, dict)]


def operators(found: list[dict[str, Any]], name: str) -> list[Operator]:
    """Operators of a trace's events by device time, then by host time. Raises UsageError NO_SHAPES."""
    device = _device_times(found)
    known: dict[str, Operator] = {}
    for event, inner in _calls(found):
        args = event["args"]
        device_us = sum(device.get(each["args"].get("External id"), 0.0) for each in (event, *inner))
        _add(known, event, args, device_us)
    if not any(any(operator.dims) for operator in known.values()):
        raise UsageError(
            "NO_SHAPES",
            f"{name!r} contains no shapes of operators' inputs.",
            "Record with record_shapes=True, or aisp profile torch with mode full.",
        )
    return sorted(known.values(), key=lambda operator: (-operator.device_us, -operator.host_us, operator.name))


def _calls(found: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Calls of operators with shapes, and those of the same name within each: an operator that calls another overload
    of itself, as `aten::sort` does, is one call.
    """
    by_thread: dict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
    for event in found:
        args = event.get("args")
        if event.get("cat") == "cpu_op" and isinstance(args, dict) and "Input Dims" in args:
            by_thread[str(event.get("pid")), str(event.get("tid"))].append(event)
    calls: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for events_of_one in by_thread.values():
        events_of_one.sort(key=lambda event: (_number(event.get("ts")), -_number(event.get("dur"))))
        outer: dict[str, tuple[float, list[dict[str, Any]]]] = {}  # by name: the end of a call, and those within
        for event in events_of_one:
            name, end = str(event.get("name")), _number(event.get("ts")) + _number(event.get("dur"))
            if name in outer and end <= outer[name][0]:
                outer[name][1].append(event)
            else:
                calls.append((event, []))
                outer[name] = end, calls[-1][1]
    return calls


SEVERAL_STEPS = 8  # calls from which on they are taken for periodic; fewer may be all of one step. Chosen


def whole_us(found: list[dict[str, Any]], name: str) -> float:
    """Microseconds of the recorded work that this operator is a part of: of all device activity; without a device, from
    the first operator's begin to the last one's end. Of a repeated operator, as much as passes between its calls, times
    their number: what a program does before the first one, such as making its weights, belongs to no step.
    """
    device = sum(_device_times(found).values())
    spans = [(_number(event.get("ts")), _number(event.get("dur"))) for event in found if event.get("cat") == "cpu_op"]
    if device or not spans:
        return device
    calls = [_number(event.get("ts")) for event, _ in _calls(found) if event.get("name") == name]
    if len(calls) >= SEVERAL_STEPS:
        return (max(calls) - min(calls)) * len(calls) / (len(calls) - 1)
    return max(begin + length for begin, length in spans) - min(begin for begin, _ in spans)


def _device_times(found: list[dict[str, Any]]) -> dict[Any, float]:
    """Microseconds of kernels by the External id of the operator that started them."""
    times: dict[Any, float] = defaultdict(float)
    for event in found:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and isinstance(event.get("args"), dict):
            times[event["args"].get("External id")] += _number(event.get("dur"))
    return times


def _add(operators: dict[str, Operator], event: dict[str, Any], args: dict[str, Any], device_us: float) -> None:
    name = str(event.get("name"))
    types, dims, strides, concrete = (args.get(field) for field in _FIELDS)
    if not isinstance(types, list) or not isinstance(dims, list) or len(types) != len(dims):
        return
    concrete = concrete if isinstance(concrete, list) and len(concrete) == len(types) else [""] * len(types)
    strides = strides if isinstance(strides, list) and len(strides) == len(types) else None
    key = json.dumps([name, types, dims, strides, concrete])
    operator = operators.setdefault(key, Operator(name, types, dims, strides, [str(text) for text in concrete]))
    operator.calls += 1
    operator.device_us += device_us
    operator.host_us += _number(event.get("dur"))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
