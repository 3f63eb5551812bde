"""Collectives under torchrun: NCCL on GPUs, gloo on CPUs, with the bus bandwidth of nccl-tests."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from aisp_mcp.system.bus import FACTORS


def argv(ranks: int) -> list[str]:
    """The torchrun command on this host; every rank reads its parameters from AISP_PROBE_PARAMS."""
    from aisp_mcp.process import python

    launcher = python.module("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--no-python")
    return [*launcher, *python.module("aisp_mcp.machine.probes.children.nccl")]


def sizes(low: int, high: int) -> list[int]:
    """Message sizes in bytes from low to high, times four each step, high included."""
    all_sizes = []
    size = low
    while size < high:
        all_sizes.append(size)
        size *= 4
    return [*all_sizes, high]


def main(params: dict[str, Any]) -> dict[str, Any]:
    """One rank. params: backend nccl|gloo, collectives, min_bytes, max_bytes, rounds, iterations.

    rows: per collective and size the bus bandwidths in bytes/s of rank 0's rounds, each the slowest rank's time.
    size follows nccl-tests: the larger of the send and the receive buffer.
    """
    import torch
    import torch.distributed as dist

    backend = params["backend"]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = f"cuda:{os.environ['LOCAL_RANK']}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, **({"device_id": torch.device(device)} if backend == "nccl" else {}))
    rows = []
    try:
        for name in params["collectives"]:
            for size in sizes(params["min_bytes"], params["max_bytes"]):
                call = _collective(torch, dist, name, size, world, device)
                seconds = _timed(torch, dist, call, device, params)
                actual = _actual(size, world)
                rows.append(
                    {"collective": name, "bytes": actual, "busbw": [actual / s * FACTORS[name](world) for s in seconds]}
                )
    finally:
        dist.destroy_process_group()
    return {"backend": backend, "ranks": world, "rank": rank, "rows": rows}


def _actual(size: int, world: int) -> int:
    """Bytes used: float32 elements, a whole number per rank."""
    return max(1, size // 4 // world) * 4 * world


def _collective(torch: Any, dist: Any, name: str, size: int, world: int, device: str) -> Callable[[], Any]:
    count = _actual(size, world) // 4
    whole = torch.rand(count, device=device)
    part = torch.rand(count // world, device=device)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: gather(whole, part),
        "reduce_scatter": lambda: scatter(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "reduce": lambda: dist.reduce(whole, 0),
    }
    return calls[name]


def _timed(torch: Any, dist: Any, call: Callable[[], Any], device: str, params: dict[str, Any]) -> list[float]:
    """Seconds per call, one value per round: the slowest rank's, because a collective ends with its last rank."""
    cuda = device != "cpu"

    def settle() -> None:
        if cuda:
            torch.cuda.synchronize()

    for _ in range(3):
        call()
    settle()
    once = _seconds(call, 1, settle)
    shared = torch.tensor([max(once, 1e-6)], device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    n = max(1, min(params["iterations"], int(0.05 / float(shared[0]))))
    values = []
    for _ in range(params["rounds"]):
        dist.barrier()
        slowest = torch.tensor([_seconds(call, n, settle) / n], device=device, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        values.append(float(slowest[0]))
    return values


def _seconds(call: Callable[[], Any], n: int, settle: Callable[[], None]) -> float:
    settle()
    start = time.perf_counter_ns()
    for _ in range(n):
        call()
    settle()
    return (time.perf_counter_ns() - start) / 1e9


def _rank_main() -> int:
    import json

    from aisp_mcp.machine.probes.children.child import MARK

    result = main(json.loads(os.environ["AISP_PROBE_PARAMS"]))
    if result["rank"] == 0:
        sys.stdout.write(f"\n{MARK}{json.dumps(result)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_rank_main())
