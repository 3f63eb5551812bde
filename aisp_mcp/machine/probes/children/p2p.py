"""Copies between two GPUs of one host: one direction, both, and the latency of a tiny one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, measure

_TINY = 100


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: size_bytes, pairs (at most this many), rounds, budget_s. Bandwidth in bytes/s, latency in seconds."""
    import torch

    count = torch.cuda.device_count()
    pairs = list(itertools.combinations(range(count), 2))[: params["pairs"]]
    result: dict[str, Any] = {"gpus": count, "pairs": []}
    for a, b in pairs:
        budget = params["budget_s"] / max(1, len(pairs))
        result["pairs"].append(_pair(torch, a, b, params["size_bytes"], params["rounds"], budget))
    return result


def _pair(torch: Any, a: int, b: int, size: int, rounds: int, budget_s: float) -> dict[str, Any]:
    torch.cuda.set_device(a)
    here, here2 = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{a}") for _ in range(2))
    there, there2 = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{b}") for _ in range(2))
    works = [
        TimedWork(f"{a}->{b}", size, lambda: there.copy_(here, non_blocking=True)),
        TimedWork(f"{b}->{a}", size, lambda: here.copy_(there, non_blocking=True)),
        TimedWork(f"{a}<->{b}", 2 * size, _both(torch, a, b, (here, there), (there2, here2))),
    ]
    clock = Clock(torch, f"cuda:{a}")
    tiny = torch.zeros(1, device=f"cuda:{a}")
    target = torch.zeros(1, device=f"cuda:{b}")
    target.copy_(tiny)
    clock.synchronize()
    latency = [clock.seconds(lambda: target.copy_(tiny, non_blocking=True), _TINY) / _TINY for _ in range(rounds)]
    return {
        "a": a,
        "b": b,
        "peer_access": torch.cuda.can_device_access_peer(a, b),
        "samples": measure(works, clock, rounds, budget_s),
        "latency_s": latency,
    }


def _both(torch: Any, a: int, b: int, out: tuple[Any, Any], back: tuple[Any, Any]) -> Callable[[], None]:
    streams = torch.cuda.Stream(device=a), torch.cuda.Stream(device=b)

    def call() -> None:
        timed = torch.cuda.current_stream(a)
        for stream in streams:
            stream.wait_stream(timed)
        with torch.cuda.stream(streams[0]):
            out[1].copy_(out[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            back[1].copy_(back[0], non_blocking=True)
        for stream in streams:
            timed.wait_stream(stream)

    return call
