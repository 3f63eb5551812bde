"""The verifier's view of a target with several ranks: one specification and one layout for all of them."""

from __future__ import annotations

from typing import Any

from aisp_mcp.bench import Benchmark, DistributedBenchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.shared_memory import Arena, GroupArena, export_device_arena, host_arena


def of_all_ranks(spec: Benchmark, ranks: int) -> Benchmark:
    """The specification in a form that this process, which has no process group, can evaluate: the reference of all
    ranks.

    Raises BenchmarkError RANKS if its number of ranks differs from the one in its text.
    """
    count = spec.ranks if isinstance(spec, DistributedBenchmark) else 1
    if count != ranks:
        hint = "aisp bench run measures several ranks; their number is a literal of the class: ranks = 2."
        raise BenchmarkError("RANKS", f"The specification has {count} ranks, and {ranks} were prepared for.", hint)
    if isinstance(spec, DistributedBenchmark):
        spec.run = spec.reference  # type: ignore[method-assign]
        for names in ("in_place", "scratch"):
            setattr(spec, names, tuple(f"{name}@{rank}" for name in getattr(spec, names) for rank in range(ranks)))
    return spec


def missing_devices(ranks: int, device: str) -> list[str]:
    """The devices that ranks lack, as a phrase."""
    if device != "cuda" or ranks == 1:
        return []
    import torch

    count = torch.cuda.device_count()
    return [f"{ranks} CUDA devices for {ranks} ranks, found {count}"] if count < ranks else []


def group_facts(ranks: int, device: str) -> dict[str, Any]:
    """Facts to disclose with a comparison of several ranks."""
    if ranks == 1:
        return {}
    return {
        "ranks": ranks,
        "backend": "nccl" if device == "cuda" else "gloo",
        "link": "of one machine" if device == "cuda" else "loopback of each program",
        "isolated_calls": "rounds of one call",
        "output_copies": "not observed: those that matter count against the candidate",
    }


def arena(
    fds: list[int], layout: Layout, device: str, shared: tuple[Arena, str | list[str]] | None = None
) -> tuple[Arena, str | list[str]]:
    """The arena of a worker, with its handle on a GPU; with several ranks, each arena is on its rank's device.

    shared: another worker's arena and handle, if both use the same device memory.
    """
    if shared is not None:
        return Arena(shared[0].flat, layout, host_arena(fds[0], layout) if layout.host else None), shared[1]
    if len(fds) == 1:
        if device != "cuda":
            return host_arena(fds[0], layout), ""
        exported_arena, handle = export_device_arena(layout)
        exported_arena.host = host_arena(fds[0], layout) if layout.host else None
        return exported_arena, handle
    parts = [layout.of_rank(rank) for rank in range(len(fds))]
    if device != "cuda":
        ranks = [host_arena(fd, part) for fd, part in zip(fds, parts, strict=True)]
        return GroupArena(ranks, layout, device), [""] * len(fds)
    import torch

    exported = []
    for rank, part in enumerate(parts):
        with torch.cuda.device(rank):
            exported.append(export_device_arena(part))
    return GroupArena([exported_arena for exported_arena, _ in exported], layout, "cuda:0"), [
        handle for _, handle in exported
    ]
