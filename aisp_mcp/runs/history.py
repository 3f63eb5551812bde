"""Verdicts of one target over time or over commits, with the levels between steps.

A step is a point where the level of a series changed for good. Levels are for charts, never for verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from aisp_mcp.store.records.verdict_row import VerdictRow

SHORT = 10  # digits of a commit


class Axis(StrEnum):
    """Order of a history."""

    TIME = "time"
    COMMIT = "commit"


@dataclass(frozen=True)
class Series:
    """One device and preset. rulings: those with a ratio, in the axis's order, each with its position on the axis.

    positions: UTC seconds, or numbers of commits. commits: by those numbers. floor: median noise floor. levels: (first,
    after the last, ratio) of stretches of one level. left_out: verdicts whose commit is unknown.
    """

    device: str
    preset: str
    rulings: list[VerdictRow]
    positions: list[float]
    commits: list[str]
    floor: float
    levels: list[tuple[int, int, float]]
    left_out: int = 0


def history(rows: Sequence[VerdictRow], axis: Axis) -> list[Series]:
    """Series of a target's verdicts. rows: newest first, as the store lists them."""
    apart: dict[tuple[str, str], list[VerdictRow]] = {}
    for row in reversed(rows):
        if row.ratio:
            apart.setdefault((row.device or "unknown", row.preset), []).append(row)
    return [_series(*key, rows, axis) for key, rows in apart.items()]


def name(row: VerdictRow) -> str:
    """The commit for readers; empty if unknown."""
    return f"{(row.revision or '')[:SHORT]}{' with changes' if row.modified else ''}"


def _series(device: str, preset: str, rows: list[VerdictRow], axis: Axis) -> Series:
    rulings, commits = rows, list[str]()
    if axis is Axis.COMMIT:
        known = sorted((row for row in rows if row.revision), key=lambda row: (row.revision_at or 0.0, row.created_at))
        commits = list(dict.fromkeys(row.revision or "" for row in known))
        rulings = sorted(known, key=lambda row: (commits.index(row.revision or ""), row.created_at))
    number = {commit: float(index) for index, commit in enumerate(commits)}
    positions = [number[row.revision or ""] if commits else row.created_at for row in rulings]
    floor = median(floors) if (floors := [row.noise_floor for row in rulings if row.noise_floor is not None]) else 0.0
    ratios = [row.ratio or 0.0 for row in rulings]
    levels = segments(ratios, floor * sum(ratios) / len(ratios)) if ratios else []
    return Series(device, preset, rulings, positions, commits, floor, levels, len(rows) - len(rulings))


LEAST = 3  # values on each side of a step
SIGMAS = 4.0
_TO_SIGMA = 1.4826  # of the median absolute deviation of a normal distribution


def segments(values: Sequence[float], floor: float = 0.0) -> list[tuple[int, int, float]]:
    """(first, after the last, median) of stretches of one level, in order, by binary segmentation.

    A step counts if the medians differ by more than floor and by more than 4 robust standard deviations within the two
    stretches.
    """
    return _split(values, 0, len(values), floor)


def _split(values: Sequence[float], begin: int, end: int, floor: float) -> list[tuple[int, int, float]]:
    cuts = range(begin + LEAST, end - LEAST + 1)
    best = min(cuts, key=lambda cut: _cost(values[begin:cut]) + _cost(values[cut:end]), default=None)
    if best is None or not _differ(values[begin:best], values[best:end], floor):
        return [(begin, end, median(values[begin:end]))] if end > begin else []
    return _split(values, begin, best, floor) + _split(values, best, end, floor)


def _cost(part: Sequence[float]) -> float:
    """Sum of absolute deviations from the median: one outlier is not a step."""
    middle = median(part)
    return sum(abs(value - middle) for value in part)


def _differ(left: Sequence[float], right: Sequence[float], floor: float) -> bool:
    spread = median([abs(value - median(part)) for part in (left, right) for value in part]) * _TO_SIGMA
    return abs(median(left) - median(right)) > max(floor, SIGMAS * spread)
