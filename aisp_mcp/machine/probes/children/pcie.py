"""Host to device and back: pinned, pageable, both directions at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aisp_mcp.machine.probes.children.timing import Clock, TimedWork, measure


def main(params: dict[str, Any]) -> dict[str, Any]:
    """params: device, size_bytes, rounds, budget_s. Samples in bytes/s; bidirectional counts both directions."""
    import torch

    device, size = params["device"], params["size_bytes"]
    pinned, back = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    pinned.random_()
    # Separate source and target: data that a copy has just written is in the processor's cache, a source is not.
    pageable, landing = pinned.clone(), pinned.clone()
    there, other = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    works = [
        TimedWork("h2d_pinned", size, lambda: there.copy_(pinned, non_blocking=True)),
        TimedWork("d2h_pinned", size, lambda: back.copy_(there, non_blocking=True)),
        TimedWork("bidirectional_pinned", 2 * size, _both(torch, pinned, there, other, back)),
        TimedWork("h2d_pageable", size, lambda: there.copy_(pageable)),
        TimedWork("d2h_pageable", size, lambda: landing.copy_(there)),
    ]
    return {"samples": measure(works, Clock(torch, device), params["rounds"], params["budget_s"]), "size_bytes": size}


def _both(torch: Any, source: Any, there: Any, other: Any, back: Any) -> Callable[[], None]:
    """Run both copies on separate streams; the timed stream waits for both, so that its events bracket them."""
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def call() -> None:
        main_stream = torch.cuda.current_stream()
        for stream in (up, down):
            stream.wait_stream(main_stream)
        with torch.cuda.stream(up):
            there.copy_(source, non_blocking=True)
        with torch.cuda.stream(down):
            back.copy_(other, non_blocking=True)
        for stream in (up, down):
            main_stream.wait_stream(stream)

    return call
