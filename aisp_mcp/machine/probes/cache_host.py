"""Cache and memory latency of the host: by compiled C if a compiler is found, else by timing differences in Python."""

from __future__ import annotations

import random
import shutil
import time
from importlib import resources
from pathlib import Path
from typing import Any

from aisp_mcp.errors import ProcessError

_LOADS = 300_000


def sizes(max_bytes: int, smallest: int = 4096) -> list[int]:
    """Working sets from 4 KiB to max_bytes, two per octave."""
    numbers = []
    size = smallest
    while size <= max_bytes:
        numbers.append(size)
        if size * 3 // 2 <= max_bytes:
            numbers.append(size * 3 // 2)
        size *= 2
    return numbers


def compiler() -> str | None:
    """A C compiler on PATH, or None."""
    return next(filter(None, (shutil.which(name) for name in ("cc", "gcc", "clang"))), None)


def by_compiler(program: str, folder: Path, max_bytes: int, rounds: int, timeout_s: float) -> dict[str, Any]:
    """Latency in ns and one-thread read bandwidth in bytes/s per working set, `rounds` samples each.

    Raises ProcessError NO_COMPILER_OUTPUT, TIMEOUT, CRASHED.
    """
    from aisp_mcp.process.run import run

    source, binary = folder / "chase.c", folder / "chase"
    source.write_text((resources.files("aisp_mcp.machine.probes") / "chase.c").read_text())
    run([program, "-O2", "-o", str(binary), str(source)], timeout_s=60, check=True)
    sets = sizes(max_bytes)
    latency: dict[int, list[float]] = {size: [] for size in sets}
    bandwidth: dict[int, list[float]] = {size: [] for size in sets}
    began = time.monotonic()
    for _ in range(rounds):
        left = timeout_s - (time.monotonic() - began)
        done = run([binary, *map(str, sets)], timeout_s=left, check=True)
        for line in done.stdout.splitlines():
            size, ns, rate = line.split()
            latency[int(size)].append(float(ns))
            bandwidth[int(size)].append(float(rate))
        if time.monotonic() - began > timeout_s / 6:
            break
    if not all(latency.values()):
        raise ProcessError("NO_COMPILER_OUTPUT", "The compiled chase printed nothing for some working set.")
    return {"method": f"C compiled by {program}", "latency_ns": latency, "bandwidth": bandwidth}


def by_interpreter(max_bytes: int, rounds: int) -> dict[str, Any]:
    """Latency above the smallest set, in ns: pointer chasing through a Python array.

    The interpreter's own cost, about ten times an L1 hit, is subtracted as the time of a 4 KiB set; the latency of L1
    itself, and bandwidth, cannot be measured this way.
    """
    sets = sizes(max_bytes)
    rings = {size: _ring(size) for size in sets}
    at = dict.fromkeys(sets, 0)
    latency: dict[int, list[float]] = {size: [] for size in sets}
    for _ in range(rounds):
        base = min(_walk(rings[sets[0]], 0)[0] for _ in range(3))
        for size in sets:
            # continue where the last round ended: earlier lines may be cached by now
            ns, at[size] = _walk(rings[size], at[size])
            latency[size].append(ns - base)
    return {"method": "interpreter, difference to a 4 KiB set", "latency_ns": latency, "bandwidth": {}}


def _ring(size: int) -> memoryview:
    """One random cycle with a stride of a cache line (8 words of 8 bytes)."""
    lines = size // 64
    order = list(range(lines))
    random.Random(size).shuffle(order)
    words = memoryview(bytearray(lines * 64)).cast("Q")
    for here, there in zip(order, [*order[1:], order[0]], strict=True):
        words[here * 8] = there * 8
    return words


def _walk(words: memoryview, at: int) -> tuple[float, int]:
    """(nanoseconds per step, last position)."""
    start = time.perf_counter_ns()
    for _ in range(_LOADS):
        at = words[at]
    return (time.perf_counter_ns() - start) / _LOADS, at
