"""The smallest kernel of the verifier, which shows when its process has its turn on the device."""

from __future__ import annotations

from collections.abc import Callable

from aisp_mcp.judge.protocol.clock import clock


class SmallestKernel:
    """Sets a single number. spot: that number, on the device."""

    def __init__(self, device: str) -> None:
        import torch

        self.spot = torch.zeros(1, device=device)
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device == "cuda" else []

    def run(self, then: Callable[[], object] = lambda: None) -> dict[str, float]:
        """probe_s: seconds that it takes now. at_s: the clock when it was done.

        then: enqueues work directly after it, while this process has its turn on the device: during a pause, another
        process's work would continue. Neither figure includes that work.
        """
        begin = clock()
        self.spot.zero_()
        if not self._marks:
            then()
            at_s = clock()
        else:
            done, end = self._marks
            done.record()
            then()
            end.record()
            end.synchronize()
            at_s = clock() - done.elapsed_time(end) / 1e3
        return {"probe_s": at_s - begin, "at_s": at_s}
