"""A sweep over data loader settings, measured in a child process that imports the user's factory."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from aisp_mcp.errors import NotFound, Unavailable, UsageError
from aisp_mcp.machine.probes import probe_runner
from aisp_mcp.runs.diagnosis.knee import Setting

Sweep = list[tuple[int, int | None, bool]]
_MAX_SETTINGS = 48
_NOTES = [
    "The loop does nothing with a batch: a training step that is slower than the knee hides the loading whole.",
    "Workers live through all passes of a setting; their start is in first_batch_s, not in samples_per_s.",
]


def plan(factory: str, workers: Sequence[int], prefetch: Sequence[int], pinning: bool) -> tuple[list[str], Sweep]:
    """The child's command and the settings. Raises UsageError BAD_FACTORY or BAD_SWEEP, NotFound NO_SCRIPT."""
    file, mark, name = factory.rpartition(":")
    if not mark or not name.isidentifier():
        raise UsageError("BAD_FACTORY", f"{factory[:80]!r} is not FILE.py:NAME.", "Such as data.py:make_dataset")
    if not Path(file).expanduser().is_file():
        raise NotFound("NO_SCRIPT", f"There is no file {file[:200]!r}.", "Give the path of a Python file.")
    if pinning and not probe_runner.on_gpu():
        raise Unavailable("NO_GPU", "Pinned memory needs a CUDA device.", "Leave pinning out.")
    counts = sorted(set(workers)) or _defaults(cpus())
    if counts[0] < 0:
        raise UsageError("BAD_SWEEP", "workers must not be negative.")
    pins = (False, True) if pinning else (False,)
    sweep: Sweep = [
        (count, ahead if count else None, pin)
        for count in counts
        for ahead in (sorted(set(prefetch)) if count else [0])
        for pin in pins
    ]
    if len(sweep) > _MAX_SETTINGS or any(ahead is not None and ahead < 1 for _, ahead, _ in sweep):
        raise UsageError("BAD_SWEEP", f"{len(sweep)} settings, or a prefetch below 1.", "Name fewer values.")
    return probe_runner.argv("dataloader"), sweep


def cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _defaults(count: int) -> list[int]:
    """0, then powers of two up to the processors, then all of them."""
    counts = [0, 1]
    while counts[-1] * 2 <= count:
        counts.append(counts[-1] * 2)
    return sorted({*counts, count})


def measure(
    factory: str, sweep: Sweep, sizes: tuple[int, int, int], timeout_s: float
) -> tuple[list[Setting], int, list[str]]:
    """(settings, processors, notes). sizes: batch, batches, passes. Raises as launch_child.ask."""
    file, _, name = factory.rpartition(":")
    batch, batches, passes = sizes
    params = {
        "factory": f"{Path(file).expanduser().resolve()}:{name}",
        "sweep": sweep,
        "batch": batch,
        "batches": batches,
        "passes": passes,
    }
    reply = probe_runner.ask("dataloader", params, timeout_s)
    settings = []
    for row in reply["rows"]:
        workers, prefetch, pinned = row["setting"]
        rates = row["samples_per_s"]
        settings.append(
            Setting(
                workers=workers,
                prefetch=prefetch,
                pinned=pinned,
                samples_per_s=statistics.median(rates),
                low=min(rates),
                high=max(rates),
                first_batch_s=row["first_s"],
            )
        )
    return settings, cpus(), [f"{reply['batches']} batches of {batch} per pass.", *_NOTES]
