"""Measured programs as points: one baseline or candidate on one machine, with time, memory, energy and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from aisp_mcp.judge.records.measurement import Figures
from aisp_mcp.judge.records.verdict import NO_TIME, Comparison, Verdict
from aisp_mcp.records import Record
from aisp_mcp.store.records.run import Run

BASELINE = "baseline"
BROKEN = (Verdict.INCORRECT, Verdict.INVALID)
MIN_MARGIN = 0.01  # memory is counted, not timed: figures closer than this are equal


class Range(Record):
    """A value with its interval; low = high for counted values."""

    value: float
    low: float
    high: float


class Variant(Record):
    """One program of one target. Times are seconds per call, memory is the most that timed calls added."""

    target: str
    name: str = Field(description="Name that selects it; `TARGET baseline` for the baseline.")
    machine: str
    run: str
    verdict: str = Field(description="Against its baseline; baseline for the baseline itself.")
    time_s: Range
    memory_bytes: Range | None = None
    energy_j: Range | None = Field(default=None, description="Per call, idle power subtracted.")
    bytes_per_s: float | None = None
    flops_per_s: float | None = None
    of_ceiling: float | None = Field(default=None, description="Share of this machine's measured roof.")


class MeasuredPair(Record):
    """A comparison with right outputs, as two variants."""

    target: str
    name: str
    baseline: Variant
    candidate: Variant
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    goal: str = "speed"


Extras = Mapping[tuple[str, str], float]
Energies = Mapping[tuple[str, str], Range]


def pairs(
    runs: Sequence[Run], ceilings: Extras | None = None, energies: Energies | None = None, provisional: bool = True
) -> tuple[list[MeasuredPair], list[str]]:
    """Every pair's newest usable comparison per machine, and why others were left out.

    runs: newest first. ceilings and energies are keyed by (run id or machine, variant name). provisional: count
    verdicts that are based on one replicate.
    """
    by_key: dict[tuple[str, str, str], MeasuredPair] = {}
    left_out: list[str] = []
    for run in runs:
        where = machine(run)
        for comparison in run.comparisons:
            key = (where, comparison.identity, comparison.known_as)
            if key in by_key:
                continue
            if comparison.verdict in BROKEN:
                left_out.append(f"{comparison.known_as} is {comparison.verdict.value} in {run.id}")
            elif comparison.baseline is None or comparison.optimized is None:
                left_out.append(f"{comparison.known_as} has no times in {run.id}")
            elif not provisional and run.is_provisional(comparison):
                left_out.append(f"{comparison.known_as} is provisional in {run.id}: measure it with preset default")
            else:
                by_key[key] = _pair(run, comparison, where, ceilings or {}, energies or {})
    return list(by_key.values()), left_out


def variants(measured_pairs: Sequence[MeasuredPair]) -> list[Variant]:
    """Candidates and one baseline per target and machine: that of its newest run."""
    rows: list[Variant] = []
    seen: set[tuple[str, str]] = set()
    for pair in measured_pairs:
        if (pair.baseline.machine, pair.target) not in seen:
            seen.add((pair.baseline.machine, pair.target))
            rows.append(pair.baseline)
        rows.append(pair.candidate)
    return rows


def machine(run: Run) -> str:
    """Name of the device that a run measured: its first GPU, else its processor."""
    if not run.gpus:
        return f"cpu: {run.host.get('cpu')}"
    count = f"{len(run.gpus)}x " if len(run.gpus) > 1 else ""
    return f"{count}{run.gpus[0].get('name')}"


def _pair(run: Run, comparison: Comparison, where: str, ceilings: Extras, energies: Energies) -> MeasuredPair:
    def variant(data: Figures, name: str, verdict: str, width: tuple[float, float]) -> Variant:
        return Variant(
            target=comparison.identity,
            name=name,
            machine=where,
            run=run.id,
            verdict=verdict,
            time_s=Range(value=data.time_s, low=data.time_s * width[0], high=data.time_s * width[1]),
            memory_bytes=_memory(data),
            energy_j=energies.get((where, name)),
            bytes_per_s=data.bytes_per_s,
            flops_per_s=data.flops_per_s,
            of_ceiling=ceilings.get((run.id, name)),
        )

    assert comparison.baseline is not None
    assert comparison.optimized is not None
    floor = comparison.noise_floor or 0.0
    return MeasuredPair(
        target=comparison.identity,
        name=comparison.known_as,
        baseline=variant(
            comparison.baseline, f"{comparison.identity} {BASELINE}", BASELINE, (1 / (1 + floor), 1 + floor)
        ),
        candidate=variant(comparison.optimized, comparison.known_as, comparison.verdict.value, _width(comparison)),
        ratio=comparison.ratio,
        ratio_low=comparison.interval.low if comparison.interval else None,
        ratio_high=comparison.interval.high if comparison.interval else None,
        goal=comparison.goal,
    )


def _width(comparison: Comparison) -> tuple[float, float]:
    """Relative interval of the candidate's time: that of its ratio, if the ratio is one of times."""
    if (
        comparison.goal in NO_TIME
        or comparison.ratio is None
        or comparison.interval is None
        or comparison.interval.low <= 0
    ):
        spread = 1 + (comparison.noise_floor or 0.0) if comparison.goal not in NO_TIME else 1.0
        return 1 / spread, spread
    return comparison.ratio / comparison.interval.high, comparison.ratio / comparison.interval.low


def _memory(figures: Figures) -> Range | None:
    """The allocator's peak on a device, else the kernel's figure for the host, within the margin."""
    peak = figures.memory.device_peak_allocated
    if peak is not None:
        return Range(value=peak, low=peak, high=peak)
    host = figures.memory.host_peak_rss
    if host is None:
        return None
    return Range(value=host, low=host / (1 + MIN_MARGIN), high=host * (1 + MIN_MARGIN))
