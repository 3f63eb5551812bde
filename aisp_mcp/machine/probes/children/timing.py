"""Timing inside a probe's child process: warm up, choose the batch size, then run rounds in which all variants
alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WARM_S = 0.25  # clocks and caches settle; a GPU leaves its idle state within about 0.1 s
BURST_S = 0.03
# A GPU under dense matrix work reaches its power limit within tens of milliseconds and is slow for as long afterwards:
# short bursts after a rest show the rate of each operation by itself, whatever ran before it.
REST_S, SHORT_S = 0.1, 0.012


@dataclass(frozen=True)
class TimedWork:
    """One thing to measure. amount: FLOPs or bytes of one call; call: runs it once, asynchronously on a GPU."""

    name: str
    amount: float
    call: Callable[[], Any]
    note: str | None = None


class Clock:
    """Seconds of n calls: CUDA events on a GPU, perf_counter_ns on a CPU."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._cuda = torch, device.startswith("cuda")

    @property
    def on_gpu(self) -> bool:
        """True if calls are asynchronous and timed by the device."""
        return self._cuda

    def synchronize(self) -> None:
        """Wait for the GPU; nothing to do on a CPU."""
        if self._cuda:
            self._torch.cuda.synchronize()

    def seconds(self, call: Callable[[], Any], n: int) -> float:
        """Time of n calls back to back."""
        if not self._cuda:
            start = time.perf_counter_ns()
            for _ in range(n):
                call()
            return (time.perf_counter_ns() - start) / 1e9
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def batch(self, call: Callable[[], Any], target_s: float = BURST_S) -> int:
        """Number of calls that fill target_s, found after one uncounted call."""
        call()
        self.synchronize()
        once = max(self.seconds(call, 1), 1e-7)
        tried = max(1, min(1000, int(0.1 * target_s / once)))
        each = max(self.seconds(call, tried) / tried, 1e-8)
        return max(1, min(100_000, round(target_s / each)))


def measure(
    works: list[TimedWork], clock: Clock, rounds: int, budget_s: float, burst_s: float = BURST_S, rest_s: float = 0.0
) -> dict[str, list[float]]:
    """Amount per second, one sample per work and round; the order alternates every round, so that drift affects all
    equally.

    At least one round is run; further ones as long as the budget lasts. rest_s: idle time of the device before each
    burst, which then begins with one uncounted call.
    """
    began = time.monotonic()
    counts = {work.name: clock.batch(work.call, burst_s) for work in works}
    _warm(works, clock, counts)
    samples: dict[str, list[float]] = {work.name: [] for work in works}
    for number in range(rounds):
        for work in works if number % 2 == 0 else works[::-1]:
            n = counts[work.name]
            if rest_s:
                clock.synchronize()
                time.sleep(rest_s)
                work.call()
            samples[work.name].append(work.amount * n / clock.seconds(work.call, n))
        if time.monotonic() - began > budget_s:
            break
    return samples


def rested(
    works: list[TimedWork], clock: Clock, params: dict[str, Any]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Measure work that the power limit can slow down: samples of short bursts after a rest, and sustained rates.

    On a CPU there is no rest, and no sustained rate.
    """
    samples = bursts(works, clock, params)
    return samples, {work.name: _sustained(work, clock) for work in works} if clock.on_gpu else {}


def bursts(works: list[TimedWork], clock: Clock, params: dict[str, Any]) -> dict[str, list[float]]:
    """`measure` as params say (rounds, budget_s); on a GPU in short bursts after a rest."""
    how = (SHORT_S, REST_S) if clock.on_gpu else (BURST_S, 0.0)
    return measure(works, clock, params["rounds"], params["budget_s"], *how)


def _sustained(work: TimedWork, clock: Clock, half_s: float = 0.5) -> float:
    """Amount per second in the second half of a second of continuous work."""
    n = clock.batch(work.call, half_s)
    clock.seconds(work.call, n)
    return work.amount * n / clock.seconds(work.call, n)


def _warm(works: list[TimedWork], clock: Clock, counts: dict[str, int]) -> None:
    start = time.monotonic()
    while True:
        for work in works:
            clock.seconds(work.call, counts[work.name])
            if time.monotonic() - start > WARM_S:
                return


def best(candidates: list[TimedWork], clock: Clock) -> TimedWork:
    """The fastest of several ways to do the same, by the highest rate in three short bursts. Ways that fail are left
    out.

    Raises RuntimeError with the reason of each if none works.
    """
    scores: list[tuple[float, TimedWork]] = []
    reasons: list[str] = []
    for work in candidates:
        try:
            n = clock.batch(work.call, 0.01)
            scores.append((max(work.amount * n / clock.seconds(work.call, n) for _ in range(3)), work))
        except Exception as error:  # a library path that this device or build lacks
            reasons.append(f"{work.note or work.name}: {type(error).__name__}: {str(error)[:160]}")
    if not scores:
        raise RuntimeError("; ".join(reasons) or "no way to do this")
    return max(scores, key=lambda pair: pair[0])[1]
