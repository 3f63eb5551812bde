"""Names common to two recordings: the role of a thread, stream or device instead of its number."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

from aisp_mcp.profile.timeline import steps
from aisp_mcp.profile.timeline.trace import Trace

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
