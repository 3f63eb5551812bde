"""Every metric of a pair side by side; the metric's own direction gives the sign of an improvement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.runs.analysis.variants import MeasuredPair, Range, Variant

Direction = Literal["lower", "higher"]
DIRECTIONS: dict[str, Direction] = {
    "time_s": "lower",
    "memory_bytes": "lower",
    "energy_j": "lower",
    "bytes_per_s": "higher",
    "flops_per_s": "higher",
    "of_ceiling": "higher",
}
DEFINITION = (
    "improvement is baseline over candidate where lower is better and candidate over baseline where higher is better, "
    "so above 1 always means that the candidate is better. told_apart: the intervals do not overlap."
)


class Metric(Record):
    """One metric of both programs. percent has the sign of the improvement: positive is better."""

    metric: str
    better: Direction
    baseline: float
    candidate: float
    improvement: float | None = Field(description="None if either is zero.")
    percent: float | None
    told_apart: bool | None = Field(default=None, description="None for rates: they follow from the times.")


class Table(Record):
    """One pair. without: metrics that one of the programs lacks."""

    name: str
    machine: str
    run: str
    verdict: str
    metrics: list[Metric]
    without: list[str]


def side_by_side(pair: MeasuredPair) -> Table:
    """Every metric that both programs have."""
    metrics = {name: _metric(name, pair.baseline, pair.candidate) for name in DIRECTIONS}
    return Table(
        name=pair.name,
        machine=pair.candidate.machine,
        run=pair.candidate.run,
        verdict=pair.candidate.verdict,
        metrics=[row for row in metrics.values() if row is not None],
        without=[name for name, row in metrics.items() if row is None],
    )


def ranked(pairs: Sequence[MeasuredPair]) -> list[Table]:
    """Tables by improvement of time, largest first."""
    return sorted((side_by_side(pair) for pair in pairs), key=lambda t: -(t.metrics[0].improvement or 0.0))


def _metric(name: str, baseline: Variant, candidate: Variant) -> Metric | None:
    before, after = getattr(baseline, name), getattr(candidate, name)
    if before is None or after is None:
        return None
    apart = None
    if isinstance(before, Range) and isinstance(after, Range):
        apart = before.high < after.low or after.high < before.low
        before, after = before.value, after.value
    top, bottom = (before, after) if DIRECTIONS[name] == "lower" else (after, before)
    improvement = top / bottom if top > 0 and bottom > 0 else None
    return Metric(
        metric=name,
        better=DIRECTIONS[name],
        baseline=before,
        candidate=after,
        improvement=improvement,
        percent=None if improvement is None else 100 * (improvement - 1),
        told_apart=apart,
    )
