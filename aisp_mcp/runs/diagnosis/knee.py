"""The knee of a sweep: the cheapest setting that is as good as the best one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.records import Record

NEAR_BEST = 0.05
DEFINITION = (
    "samples/s of a whole pass, median over passes. The knee is the setting with the fewest workers (then the least "
    "prefetch, then without pinning) whose best pass reaches 95 % of the best setting's median."
)


class Setting(Record):
    """One setting of a data loader, with the throughput of each pass over the same batches."""

    workers: int
    prefetch: int | None = Field(description="Batches ahead per worker; None without workers.")
    pinned: bool
    samples_per_s: float = Field(description="Median over passes.")
    low: float
    high: float
    first_batch_s: float = Field(description="Until the first batch of all: starts of workers included.")


class Knee(Record):
    """The chosen setting, compared with the best and with no workers."""

    workers: int
    prefetch: int | None
    pinned: bool
    of_best: float
    speedup: float | None = Field(description="Over the setting without workers, if it was measured.")
    sentence: str


def knee(settings: Sequence[Setting]) -> Knee:
    """Find the knee. Raises ValueError without settings."""
    best = max(settings, key=lambda s: s.samples_per_s)
    good = [s for s in settings if s.high >= (1 - NEAR_BEST) * best.samples_per_s]
    chosen = min(good, key=lambda s: (s.workers, s.prefetch or 0, s.pinned, -s.samples_per_s))
    alone = next((s for s in settings if s.workers == 0 and not s.pinned), None)
    speedup = chosen.samples_per_s / alone.samples_per_s if alone else None
    if chosen.workers == 0:
        sentence = "workers do not pay here: loading in the main process is as fast"
    else:
        gain = f", {speedup:.3g}x of no workers" if speedup else ""
        sentence = (
            f"{chosen.workers} workers, prefetch {chosen.prefetch}, pinning {'on' if chosen.pinned else 'off'}{gain}"
        )
    return Knee(
        workers=chosen.workers,
        prefetch=chosen.prefetch,
        pinned=chosen.pinned,
        of_best=chosen.samples_per_s / best.samples_per_s,
        speedup=speedup,
        sentence=sentence,
    )
