"""Profiles in the format of the Firefox Profiler, as samply and Firefox save them: samples of threads, in tables.

Each thread has its tables, or since version 60 all share them. A stack refers to its caller by number or, since version
66, by distance.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aisp_mcp.profile.readers.kineto import number
from aisp_mcp.profile.readers.text import clean

_ADDRESS = re.compile(r"0x[0-9a-f]+(?: in |\Z)")
_UNITS = {"samples": ("samples", 1.0), "tracing-ms": ("nanoseconds", 1e6), "bytes": ("bytes", 1.0)}
Row = tuple[str, tuple[str, ...], float]  # unit, stack without frames beyond the limit, weight


def rows(top: dict[str, Any], depth: int, notes: list[str]) -> Iterator[Row]:
    """Each sample, its thread's name outermost. Raises KeyError, TypeError, IndexError or ValueError for tables that do
    not fit together.
    """
    idle = unnamed = whole = 0.0
    for thread in top["threads"]:
        samples = thread["samples"]
        if "schema" in samples:
            raise ValueError("its rows are in Firefox's raw form")
        name = (clean(thread.get("name") or "thread", 120),)
        stacks = _Stacks({**thread, **top.get("shared", {})}, depth)
        unit, scale = _UNITS[samples.get("weightType") or "samples"]
        length = len(samples["stack"])
        weights = samples.get("weight") or [1] * length
        if len(weights) != length:
            raise ValueError(f"a thread has {length:,} samples and {len(weights):,} weights")
        spent = samples.get("threadCPUDelta") or [None] * length
        for stack, weight, cpu in zip(samples["stack"], weights, spent, strict=False):
            weight = (number(weight) or 0.0) * scale
            frames = stacks[stack]
            whole, idle = whole + weight, idle + weight * (cpu == 0)
            unnamed += weight * bool(frames and _ADDRESS.match(frames[-1]))
            yield unit, name + frames, weight
    if idle:
        notes.append(f"In {_share(idle, whole)} of the weight, the thread used no processor time: it was waiting.")
    if unnamed:
        notes.append(
            f"{_share(unnamed, whole)} of the weight is in functions without a name: the file has only addresses. "
            "Save it again from the viewer, or record with `samply record --unstable-presymbolicate`."
        )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g} %"


class _Stacks:
    """Frames of a stack by its number, outermost first."""

    def __init__(self, tables: dict[str, Any], depth: int) -> None:
        stacks, self._depth = tables["stackTable"], depth
        self._frame, self._func = stacks["frame"], tables["frameTable"]["func"]
        self._name, self._texts = tables["funcTable"]["name"], tables["stringArray"]
        self._place = tables["funcTable"].get("resource")
        self._places = tables.get("resourceTable", {}).get("name", [])
        self._caller: list[int | None] = (
            stacks["prefix"]
            if "prefix" in stacks
            else [at - back if back else None for at, back in enumerate(stacks["prefixOffset"])]
        )
        self._known: dict[int | None, tuple[str, ...]] = defaultdict(tuple)

    def __getitem__(self, stack: int | None) -> tuple[str, ...]:
        """Raise ValueError for a stack that is not after its caller."""
        if stack is not None and stack not in self._known:
            chain = [stack]
            while (caller := self._caller[chain[-1]]) is not None and caller not in self._known:
                if not 0 <= caller < chain[-1]:
                    raise ValueError("a stack does not come after its caller")
                chain.append(caller)
            for at in reversed(chain):
                above = self._known[self._caller[at]]
                function = self._func[self._frame[at]]
                self._known[at] = (*above, self._named(function)) if len(above) < self._depth else above
        return self._known[stack]

    def _named(self, function: int) -> str:
        """Its name; of one that is only an address, also the library, since addresses of two libraries may be equal."""
        name = str(self._texts[self._name[function]])
        place = self._place[function] if self._place and _ADDRESS.match(name) else None
        if place is not None and 0 <= place < len(self._places):
            name = f"{name} in {self._texts[self._places[place]]}"
        return clean(name, 512)
