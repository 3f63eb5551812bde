"""Pareto frontier over time, memory and energy. One program dominates another only if intervals prove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.runs.analysis.variants import Range, Variant

Metric = Literal["time_s", "memory_bytes", "energy_j"]
METRICS: tuple[Metric, ...] = get_args(Metric)
NOT_WORSE = 0.02
DEFINITION = (
    "A dominates B when it is proven better on one metric (intervals apart) and proven at most 2 % worse on every "
    "other one. Only variants of one target on one machine are compared. Lower is better for all three metrics."
)


class Point(Record):
    """One variant's position."""

    name: str
    frontier: bool
    dominated_by: list[str] = Field(default_factory=list)
    verdict: str
    time_s: float
    time_interval_s: list[float]
    memory_bytes: float | None = None
    energy_j: float | None = None


class Front(Record):
    """All variants of one target on one machine, fastest first. metrics: those that every variant has."""

    target: str
    machine: str
    metrics: list[Metric]
    without: list[Metric] = Field(description="Metrics that at least one variant lacks: not compared.")
    points: list[Point]


def fronts(rows: Sequence[Variant], metrics: Sequence[Metric] = METRICS) -> list[Front]:
    """One frontier per target and machine."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for row in rows:
        groups.setdefault((row.target, row.machine), []).append(row)
    return [_front(group, metrics) for group in groups.values()]


def _front(group: Sequence[Variant], metrics: Sequence[Metric]) -> Front:
    usable = [metric for metric in metrics if all(getattr(row, metric) is not None for row in group)]
    points = []
    for row in sorted(group, key=lambda v: v.time_s.value):
        above = [other.name for other in group if other is not row and dominates(other, row, usable)]
        points.append(
            Point(
                name=row.name,
                frontier=not above,
                dominated_by=above,
                verdict=row.verdict,
                time_s=row.time_s.value,
                time_interval_s=[row.time_s.low, row.time_s.high],
                memory_bytes=row.memory_bytes.value if row.memory_bytes else None,
                energy_j=row.energy_j.value if row.energy_j else None,
            )
        )
    return Front(
        target=group[0].target,
        machine=group[0].machine,
        metrics=usable,
        without=[metric for metric in metrics if metric not in usable],
        points=points,
    )


def dominates(a: Variant, b: Variant, metrics: Sequence[Metric]) -> bool:
    """Return True if a is proven better on one metric and proven not worse on all."""
    ranges: list[tuple[Range, Range]] = [(getattr(a, metric), getattr(b, metric)) for metric in metrics]
    better = any(first.high < second.low for first, second in ranges)
    return better and all(
        first.high <= second.low * (1 + NOT_WORSE) or _equal(first, second) for first, second in ranges
    )


def _equal(a: Range, b: Range) -> bool:
    """Return True if figures differ by less than the margin, with intervals no wider than it."""
    narrow = all(part.high <= part.low * (1 + NOT_WORSE) ** 2 for part in (a, b))
    return narrow and abs(a.value - b.value) <= NOT_WORSE * b.value
