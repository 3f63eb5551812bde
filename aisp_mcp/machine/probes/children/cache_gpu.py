"""Latency and bandwidth of the GPU's memory hierarchy over working sets."""

from __future__ import annotations

import random
from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, measure

_STEPS = 20_000
_SWEPT = 1 << 30  # bytes per launch: some 0.2 ms, so that launch overhead is negligible


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, max_bytes, stride_bytes, rounds, budget_s.

    latency_ns: one warp follows a random cycle of 4-byte indices. bandwidth: one launch reads the set repeatedly past
    the first-level caches, bytes/s; sets of at least 1 MiB. Several multiprocessors that read the same small set at
    once may be served together on the way to L2, so the smallest sets can exceed the rate of L2 itself.
    """
    import torch

    device = params["device"]
    clock = Clock(torch, device)
    sets = [16 << 10 << n for n in range(32) if 16 << 10 << n <= params["max_bytes"]]
    latency = {size: _latency(torch, clock, device, size, params) for size in sets}
    works = [_reader(torch, device, size) for size in sets if size >= 1 << 20]
    bandwidth = measure(works, clock, params["rounds"], params["budget_s"] / 2) if works else {}
    return {
        "method": "Triton: a chain of dependent loads by one warp; repeated reads past L1 by all multiprocessors",
        "stated": {"L2": torch.cuda.get_device_properties(device).L2_cache_size},
        "latency_ns": latency,
        "bandwidth": {int(name): samples for name, samples in bandwidth.items()},
    }


def _latency(torch: Any, clock: Clock, device: str, size: int, params: dict[str, Any]) -> list[float]:
    from aisp_mcp.machine.probes.children.triton_kernels import chase

    stride = params["stride_bytes"] // 4
    slots = max(2, size // params["stride_bytes"])
    order = list(range(min(slots, 1 << 22)))
    random.Random(size).shuffle(order)
    step = max(1, slots // len(order)) * stride
    links = torch.zeros(size // 4, dtype=torch.int32)
    here = torch.tensor(order, dtype=torch.int64)
    links[here * step] = (torch.roll(here, -1) * step).to(torch.int32)
    on_device, out = links.to(device), torch.zeros(1, dtype=torch.int32, device=device)
    chase(on_device, out, min(len(order), 1 << 20))  # compile, and warm the caches
    clock.synchronize()
    seconds = [clock.seconds(lambda: chase(on_device, out, _STEPS), 1) for _ in range(params["rounds"])]
    return [s / _STEPS * 1e9 for s in seconds]


def _reader(torch: Any, device: str, size: int) -> TimedWork:
    from aisp_mcp.machine.probes.children.triton_kernels import sweep

    data = torch.rand(size // 4, device=device)
    out = torch.empty(4 * torch.cuda.get_device_properties(device).multi_processor_count, device=device)
    steps = max(1, max(_SWEPT, 2 * size) // sweep(data, out, 1))
    return TimedWork(str(size), sweep(data, out, steps), lambda: sweep(data, out, steps))
