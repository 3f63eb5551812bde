"""Memory bandwidth of the device or the host: copy, read, write, triad. Bytes counted as STREAM does: each array once
per pass, no write-allocate traffic."""

from __future__ import annotations

from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, best, measure

KINDS = ("copy", "read", "write", "triad")


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, kinds, size_bytes (of each array), rounds, budget_s. Samples in bytes/s."""
    import torch

    device = params["device"]
    clock = Clock(torch, device)
    n = params["size_bytes"] // 4
    a, b = (torch.rand(n, device=device) for _ in range(2))
    c = torch.empty(n, device=device)  # only written; the uncounted first calls touch its pages
    chosen, skipped = [], {}
    for kind in params["kinds"]:
        try:
            chosen.append(best(candidates(torch, kind, a, b, c), clock))
        except RuntimeError as error:
            skipped[kind] = str(error)[:400]
    samples = measure(chosen, clock, params["rounds"], params["budget_s"])
    return {"samples": samples, "paths": {w.name: w.note for w in chosen}, "skipped": skipped, "size_bytes": 4 * n}


def candidates(torch: Any, kind: str, a: Any, b: Any, c: Any) -> list[TimedWork]:
    """Ways to move the bytes of one kind."""
    size = a.numel() * a.element_size()
    if kind == "copy":
        return [
            TimedWork(kind, 2 * size, lambda: b.copy_(a), "Tensor.copy_"),
            TimedWork(kind, 2 * size, lambda: torch.add(a, 1.0, out=b), "torch.add with a scalar"),
        ]
    if kind == "write":
        return [
            TimedWork(kind, size, lambda: b.fill_(1.0), "Tensor.fill_"),
            TimedWork(kind, size, lambda: b.zero_(), "Tensor.zero_"),
        ]
    if kind == "triad":
        return [TimedWork(kind, 3 * size, lambda: torch.add(a, b, alpha=3.0, out=c), "torch.add with alpha")]
    return _read(torch, kind, a, size)


def _read(torch: Any, kind: str, a: Any, size: int) -> list[TimedWork]:
    rows = a[: a.numel() // 4096 * 4096].view(-1, 4096)
    ways = [
        TimedWork(kind, size, lambda: a.sum(), "Tensor.sum"),
        TimedWork(kind, size, lambda: torch.amax(a), "torch.amax"),
        TimedWork(kind, rows.numel() * 4, lambda: rows.sum(dim=1), "Tensor.sum by rows of 16 KiB"),
    ]
    if a.is_cuda:
        from aisp_mcp.machine.probes.children.triton_kernels import read_all

        ways.append(TimedWork(kind, size, lambda: read_all(a), "Triton reduction by blocks"))
    return ways
