"""Device memory that processes use by turns, where a single call takes too much for each of them to keep its own."""

from __future__ import annotations

from contextlib import suppress

from aisp_mcp.judge.protocol.layout import Layout


def synchronize(device: str) -> None:
    """Wait until every device has finished this process's work; nothing to do on a CPU."""
    if device == "cuda":
        import torch

        for number in range(torch.cuda.device_count()):
            torch.cuda.synchronize(number)


def give_back(layout: Layout) -> None:
    """Return what this process has allocated and does not use."""
    if layout.tight:
        import torch

        torch.cuda.empty_cache()


def regain(layout: Layout, size: int) -> None:
    """Allocate that many bytes beforehand, so that no call waits for memory that was given back."""
    if layout.tight and size:
        import torch

        with suppress(torch.OutOfMemoryError):
            torch.empty(size, dtype=torch.uint8, device="cuda")


def renew(layout: Layout, size: int) -> None:
    """Return what is unused, then allocate that many bytes: afterwards, memory is the same whatever came before."""
    give_back(layout)
    regain(layout, size)


def begin_peak(device: str) -> int:
    """Bytes that this process has allocated on the device; peak() counts from now on. 0 on a CPU."""
    if device != "cuda":
        return 0
    import torch

    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def peak(device: str) -> int:
    """The most bytes that this process has allocated at a time since begin_peak(). 0 on a CPU."""
    if device != "cuda":
        return 0
    import torch

    return int(torch.cuda.max_memory_allocated())
