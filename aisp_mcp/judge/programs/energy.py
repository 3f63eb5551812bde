"""Run one baseline or candidate in a loop and read its GPU's energy counter. No time here counts for a verdict.

The program itself reads the counter, between synchronisations, so a candidate could falsify it. Inputs repeat.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from aisp_mcp.judge.programs.single import prepared
from aisp_mcp.system.gpu.energy import GpuCounter

_WINDOWS, _WINDOW_S, _IDLE_S = 5, 1.5, 1.5
_CALLS = 8  # prepared inputs


def play(baseline: str, candidate: str | None = None, *, size: str, device: str, threads: int) -> None:
    """Write energy.json: windows of calls, idle power in W, and the declared work of one call.

    Raises Unavailable NO_ENERGY_COUNTER, and as `prepared`.
    """
    torch, spec, run, inputs = prepared(baseline, candidate, size, device, threads, _CALLS)
    facts = torch.cuda.get_device_properties(0)
    counter = GpuCounter(f"GPU-{facts.uuid}")
    idle = _idle_w(torch, counter)
    for given in inputs[:3]:
        run(**given)
    per_batch = _batch(torch, run, inputs)
    windows = [_window(torch, run, inputs, per_batch, counter) for _ in range(_WINDOWS)]
    work = spec.work()
    answer = {
        "windows": windows,
        "idle_w": idle,
        "work": [float(work.flops or 0), float(work.bytes or 0)] if work else [0.0, 0.0],
        "device": str(facts.name),
        "uuid": f"GPU-{facts.uuid}",
    }
    Path("energy.json").write_text(json.dumps(answer))


def _idle_w(torch: Any, counter: GpuCounter) -> float:
    """Mean power of the idle device with this process's context on it."""
    torch.cuda.synchronize()
    began, before = time.perf_counter(), counter.joules()
    time.sleep(_IDLE_S)
    return (counter.joules() - before) / (time.perf_counter() - began)


def _batch(torch: Any, run: Any, inputs: list[dict[str, Any]]) -> int:
    """Number of calls between two readings of the clock, about 50 ms."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for given in inputs:
        run(**given)
    torch.cuda.synchronize()
    return max(1, int(0.05 / ((time.perf_counter() - began) / len(inputs))))


def _window(
    torch: Any, run: Any, inputs: list[dict[str, Any]], per_batch: int, counter: GpuCounter
) -> dict[str, float]:
    torch.cuda.synchronize()
    began, before, calls = time.perf_counter(), counter.joules(), 0
    while time.perf_counter() - began < _WINDOW_S:
        for _ in range(per_batch):
            run(**inputs[calls % len(inputs)])
            calls += 1
        torch.cuda.synchronize()
    after = counter.joules()
    return {"calls": calls, "seconds": time.perf_counter() - began, "energy_j": after - before}
