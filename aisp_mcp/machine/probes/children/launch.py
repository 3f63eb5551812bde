"""Cost of one small operation: dispatch, launch, synchronisation. Samples in seconds per operation."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_CALLS = 800  # below the capacity of the launch queue (1024), so that the host never waits
_GRAPH = 100


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, rounds. Rounds interleave all measurements; each sample is a mean over many operations."""
    import torch

    device = params["device"]
    works = _cuda(torch, device) if device.startswith("cuda") else _cpu(torch)
    for call in works.values():
        call()
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(params["rounds"]):
        for name, call in works.items():
            samples[name].append(call())
    return {"samples": samples}


def _each(n: int, step: Callable[[], Any], after: Callable[[], Any] = lambda: None) -> float:
    start = time.perf_counter_ns()
    for _ in range(n):
        step()
    after()
    return (time.perf_counter_ns() - start) / 1e9 / n


def _cpu(torch: Any) -> dict[str, Callable[[], float]]:
    x, wide = torch.zeros(1), torch.zeros(1 << 16)
    nothing = [sys.executable, "-I", "-S", "-c", "pass"]
    return {
        "operator_dispatch": lambda: _each(_CALLS, lambda: x.add_(1)),
        # large enough that torch splits it among its threads: the difference is fork and join
        "parallel_operator": lambda: _each(_CALLS // 4, lambda: wide.add_(1)),
        "process_start": lambda: _each(1, lambda: subprocess.run(nothing, check=True)),
    }


def _cuda(torch: Any, device: str) -> dict[str, Callable[[], float]]:
    x = torch.zeros(1, device=device)
    sync = torch.cuda.synchronize
    graph = torch.cuda.CUDAGraph()
    x.add_(1)
    sync()
    with torch.cuda.graph(graph):
        for _ in range(_GRAPH):
            x.add_(1)

    def round_trip() -> None:
        x.add_(1)
        sync()

    def launched() -> float:
        sync()
        seconds = _each(_CALLS, lambda: x.add_(1))  # they fit into the queue: this is the host's cost alone
        sync()
        return seconds

    return {
        "launch": launched,
        "launch_and_synchronize": lambda: _each(_CALLS // 4, round_trip),
        "synchronize_idle": lambda: _each(_CALLS, sync),
        "kernel_back_to_back": lambda: _each(_CALLS, lambda: x.add_(1), sync),
        "kernel_in_graph": lambda: _each(20, graph.replay, sync) / _GRAPH,
    }
