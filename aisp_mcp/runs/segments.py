"""Find steps in a series of values: points where its level changed for good. For charts, never for verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

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
