"""Verdicts of one target over time or over commits, with the levels between steps. Levels are for charts only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from aisp_mcp.runs.segments import segments
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
