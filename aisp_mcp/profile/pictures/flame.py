"""Weighted stacks from any profile that has them, in three forms: collapsed, speedscope, one HTML file.

Two recordings number their threads, streams and devices differently, so their frames are named by role.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.profile.load import load_trace
from aisp_mcp.profile.readers.files import kind_of, look
from aisp_mcp.profile.readers.stacks import MAX_STACKS, UNNAMED, Stacks, weighted
from aisp_mcp.profile.timeline import steps
from aisp_mcp.profile.timeline.trace import Trace

Form = Literal["speedscope", "collapsed", "html"]
_DEPTH = 200
_PROCESS = re.compile(r"^process \d+")


class Weighed(NamedTuple):
    """Self weight per stack, outermost frame first. per: the unit, if it is not the whole profile."""

    stacks: Stacks
    unit: str
    per: str = ""


def pair(a: str | Path, b: str | Path) -> tuple[Weighed, Weighed]:
    """Two profiles under common names: by rank, kind of stream, thread and step; per iteration if both have iterations.

    Raises what `stacks` raises, and UsageError WRONG_KIND for different units.
    """
    files = [look(path) for path in (a, b)]
    if "stacks" in map(kind_of, files):
        sources = [stacks(path) for path in (a, b)]
        units = [unit for _, unit in sources]
        if units[0] != units[1] and not {"samples", UNNAMED}.issuperset(units):
            text = f"One profile counts {units[0]}, the other {units[1]}."
            raise UsageError("WRONG_KIND", text, "Compare two of one kind.")
        before, after = (Weighed(_without_ids(weights), unit) for weights, unit in sources)
        return before, after
    return of_traces([load_trace(path) for path in (a, b)])


def of_traces(traces: Sequence[Trace]) -> tuple[Weighed, Weighed]:
    """Two traces under common names."""
    weights = [_of_trace(trace, Roles(trace)) for trace in traces]
    counts = [len(steps.find(trace.ranges)) for trace in traces]
    if min(counts) < 2:
        return Weighed(weights[0], "nanoseconds"), Weighed(weights[1], "nanoseconds")
    shares = ({stack: ns // n for stack, ns in w.items()} for w, n in zip(weights, counts, strict=True))
    before, after = (Weighed(share, "nanoseconds", "iteration") for share in shares)
    return before, after


def _without_ids(weights: Stacks) -> Stacks:
    """Remove the process number, which py-spy adds to the outermost frame."""
    merged: Stacks = defaultdict(int)
    for stack, weight in weights.items():
        merged[tuple(_PROCESS.sub("process", frame) for frame in stack)] += weight
    return dict(merged)


def stacks(path: str | Path, notes: list[str] | None = None) -> tuple[Stacks, str]:
    """Self time per stack, outermost frame first, and its unit; notes as in `weighted`.

    Raises NotFound, UsageError, Unavailable NO_STACKS.
    """
    file = look(path)
    if kind_of(file) == "stacks":
        return weighted(file, notes)
    weights = _of_trace(load_trace(path))
    if not weights:
        raise Unavailable(
            "NO_STACKS",
            "The profile contains no nested host events and no device activity.",
            "Record with NVTX or torch.profiler.",
        )
    return weights, "nanoseconds"


def hottest(weights: Stacks, unit: str, limit: int) -> list[dict[str, str | int | float]]:
    """Frames by self weight: own, with callees (a frame that calls itself counted once), and the share of all."""
    own: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for stack, weight in weights.items():
        own[stack[-1]] += weight
        for frame in set(stack):
            whole[frame] += weight
    everything = sum(weights.values()) or 1
    end = "ns" if unit == "nanoseconds" else "samples" if unit.startswith("samples") else "weight"
    rows = sorted(own, key=lambda name: (-own[name], name))[:limit]
    return [
        {"frame": n, f"self_{end}": own[n], f"total_{end}": whole[n], "self_share": round(own[n] / everything, 4)}
        for n in rows
    ]


def _of_trace(trace: Trace, roles: Roles | None = None) -> Stacks:
    """Host: nesting of frames, ranges, operators and calls per thread. Device: stream and kernel."""
    by_thread: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for rows in (trace.frames, trace.operators, trace.api):
        for call in rows:
            by_thread[call.thread].append((call.start, -call.end, call.name))
    for span in trace.ranges:
        name = roles.range(span.name) if roles else span.name
        by_thread[span.thread].append((span.start, -span.end, name))
    weights: Stacks = defaultdict(int)
    for label, thread in enumerate(sorted(by_thread)):
        name = roles.thread(thread) if roles else f"host thread {label}"
        _nest(name, sorted(by_thread[thread]), weights)
    for op in trace.gpu:
        device = roles.device(op.device) if roles else f"GPU {op.device}"
        stream = roles.stream(op.device, op.stream) if roles else f"stream {op.stream}"
        weights[device, stream, op.name] += max(0, op.end - op.start)
    return {stack: ns for stack, ns in weights.items() if ns > 0}


def _nest(root: str, events: Iterable[tuple[int, int, str]], weights: Stacks) -> None:
    """Self time: duration minus direct children. An event that outlives its parent is truncated at the parent's end."""
    open_: list[tuple[int, tuple[str, ...]]] = []
    for start, negative_end, name in events:
        end = -negative_end
        while open_ and open_[-1][0] <= start:
            open_.pop()
        if open_:
            end = min(end, open_[-1][0])
        parent = open_[-1][1] if open_ else (root,)
        if len(parent) >= _DEPTH or len(weights) > MAX_STACKS:
            continue
        if open_:
            weights[parent] -= end - start
        stack = (*parent, name)
        weights[stack] += end - start
        open_.append((end, stack))


def to_collapsed(weights: Stacks) -> str:
    """One line per stack; a semicolon in a name would split it."""
    rows = [";".join(frame.replace(";", ":") for frame in stack) + f" {ns}" for stack, ns in weights.items() if ns > 0]
    return "\n".join(sorted(rows)) + "\n"


def to_speedscope(by_stack: Stacks, unit: str, name: str) -> str:
    index: dict[str, int] = {}
    rows = [(stack, ns) for stack, ns in sorted(by_stack.items()) if ns > 0]
    samples = [[index.setdefault(frame, len(index)) for frame in stack] for stack, _ in rows]
    weights = [ns for _, ns in rows]
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds" if unit == "nanoseconds" else "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": "aisp",
        "shared": {"frames": [{"name": frame} for frame in index]},
        "profiles": [profile],
    }
    return json.dumps(document, ensure_ascii=True)


Key = TypeVar("Key", bound=Hashable)
_NUMBER = re.compile(r"[\s_#:=-]*\d+$")
_STREAM = {"kernel": "compute", "communication": "communication", "memcpy": "copies", "memset": "copies"}


class Roles:
    """The roles of one trace. Of several similar ones, the busiest is number 1."""

    def __init__(self, trace: Trace) -> None:
        self._devices = self._by_rank(trace)
        self._streams = self._by_work(trace)
        self._threads = self._by_part(trace)

    def device(self, number: int) -> str:
        return self._devices[number]

    def stream(self, device: int, number: int) -> str:
        return self._streams[device, number]

    def thread(self, number: int) -> str:
        return self._threads[number]

    @staticmethod
    def range(name: str) -> str:
        """The kind of a step: `ProfilerStep#12` and `ProfilerStep#13` are the same work."""
        return _NUMBER.sub("", name) or name if steps.is_step(name) else name

    @staticmethod
    def _by_rank(trace: Trace) -> dict[int, str]:
        devices = sorted({op.device for op in trace.gpu})
        return {device: f"rank {at}" if len(devices) > 1 else "device" for at, device in enumerate(devices)}

    @staticmethod
    def _by_work(trace: Trace) -> dict[tuple[int, int], str]:
        spent: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        for op in trace.gpu:
            spent[op.device, op.stream][_STREAM[op.kind]] += op.end - op.start
        rows = [(stream, work.most_common(1)[0][0], work.total()) for stream, work in spent.items()]
        rows.sort(key=lambda row: (row[0][0], -row[2], row[0]))
        return _numbered((stream, f"{kind} stream", (stream[0], kind)) for stream, kind, _ in rows)

    @staticmethod
    def _by_part(trace: Trace) -> dict[int, str]:
        spent: Counter[int] = Counter()
        for rows in (trace.frames, trace.operators, trace.api):
            for call in rows:
                spent[call.thread] += call.end - call.start
        for host_range in trace.ranges:
            spent[host_range.thread] += host_range.end - host_range.start
        backward = {c.thread for c in trace.operators if c.name.startswith("autograd::engine")}
        driving = {step.thread for step in steps.find(trace.ranges)}
        kinds = [
            (t, "main thread" if t in driving else "backward thread" if t in backward else "thread")
            for t, _ in sorted(spent.items(), key=lambda item: (-item[1], item[0]))
        ]
        return _numbered((thread, kind, kind) for thread, kind in kinds)


def _numbered(rows: Iterable[tuple[Key, str, object]]) -> dict[Key, str]:
    """key → label, numbered from the second of its group on."""
    seen: Counter[object] = Counter()
    names: dict[Key, str] = {}
    for key, label, group in rows:
        seen[group] += 1
        names[key] = label if seen[group] == 1 else f"{label} {seen[group]}"
    return names
