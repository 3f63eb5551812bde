"""Energy per call from the driver's counter: idle power subtracted and shown, short windows refused."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.runs.analysis.variants import Range
from aisp_mcp.store.records.run import Run

MIN_WINDOW_S = 0.5  # the counter advances in steps of some 20 to 100 ms: a shorter window is mostly rounding
DEFINITION = (
    "energy_j per call = (counter after - counter before - idle power x window) / calls, from NVML's total energy "
    "counter of the GPU: board power, no host. Median and range over windows of at least 0.5 s. flops_per_j and "
    "bytes_per_j: the work that the benchmark declares over it."
)


class Window(Record):
    """One reading: the counter's difference over a number of calls."""

    calls: int
    seconds: float
    energy_j: float


class Reading(Record):
    """One program measured over windows."""

    name: str
    target: str
    machine: str
    calls: int
    per_call_j: Range
    gross_per_call_j: float = Field(description="Idle power included.")
    idle_w: float
    power_w: float = Field(description="Mean over the windows, idle power included.")
    flops_per_j: float | None = None
    bytes_per_j: float | None = None
    measured_at: float | None = Field(default=None, description="UTC seconds since the epoch.")


class RunEnergy(Record):
    """A whole run of both programs, with starts and checks: its power is meaningful, its energy per call is not."""

    run: str
    gpu: str | None
    seconds: float
    energy_j: float
    mean_w: float


def reading(
    name: str,
    target: str,
    machine: str,
    windows: Sequence[Window],
    idle_w: float,
    work: tuple[float, float] = (0.0, 0.0),
) -> Reading:
    """The reading of a program. work: declared (FLOP, bytes) of one call, 0 if none. Raises ValueError without a window
    of 0.5 s.
    """
    usable = [w for w in windows if w.seconds >= MIN_WINDOW_S and w.calls > 0]
    if not usable:
        raise ValueError(f"no window of at least {MIN_WINDOW_S} s")
    per_call = sorted((w.energy_j - idle_w * w.seconds) / w.calls for w in usable)
    gross = sorted(w.energy_j / w.calls for w in usable)
    middle, plain = per_call[len(per_call) // 2], gross[len(gross) // 2]
    return Reading(
        name=name,
        target=target,
        machine=machine,
        calls=sum(w.calls for w in usable),
        per_call_j=Range(value=middle, low=per_call[0], high=per_call[-1]),
        gross_per_call_j=plain,
        idle_w=idle_w,
        power_w=sum(w.energy_j for w in usable) / sum(w.seconds for w in usable),
        flops_per_j=work[0] / middle if work[0] and middle > 0 else None,
        bytes_per_j=work[1] / middle if work[1] and middle > 0 else None,
    )


def ranked(readings: Sequence[Reading]) -> list[Reading]:
    """Sort by machine and target, lowest energy per call first."""
    return sorted(readings, key=lambda row: (row.machine, row.target, row.per_call_j.value))


def of_runs(runs: Sequence[Run]) -> list[RunEnergy]:
    """Whole runs whose sampler saw an energy counter for at least 0.5 s."""
    rows = []
    for run in runs:
        during = run.environment.get("during") or {}
        seconds = during.get("seconds") or 0.0
        for gpu in during.get("gpus") or []:
            joules = gpu.get("energy_j")
            if joules and seconds >= MIN_WINDOW_S:
                rows.append(
                    RunEnergy(
                        run=run.id, gpu=gpu.get("uuid"), seconds=seconds, energy_j=joules, mean_w=joules / seconds
                    )
                )
    return rows
