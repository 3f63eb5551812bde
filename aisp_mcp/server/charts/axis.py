"""Logarithmic axes: from values to positions, and the round values to mark. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LogAxis:
    """Natural logarithms from low to high, laid out from start to end (per cent of a width, or pixels)."""

    low: float
    high: float
    start: float
    end: float

    def position(self, log_value: float) -> float:
        """Position of a value; values outside are clipped to the end."""
        inside = min(max(log_value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, log_value: float) -> bool:
        return self.low <= log_value <= self.high

    def ticks(self, candidates: Iterable[float], gap: float) -> list[float]:
        """The values inside the axis that are at least gap apart; earlier candidates take precedence."""
        chosen: list[float] = []
        for value in candidates:
            at = log(value)
            if at is None or not self.holds(at):
                continue
            if all(abs(self.position(at) - self.position(math.log(other))) >= gap for other in chosen):
                chosen.append(value)
        return sorted(chosen)


def log(value: float | None) -> float | None:
    """The natural logarithm of a finite positive number; None for everything else."""
    return math.log(value) if value is not None and math.isfinite(value) and value > 0 else None


def decades(values: Sequence[float]) -> tuple[float, float]:
    """The whole powers of ten around some logarithms, at least one apart, as logarithms."""
    ten = math.log(10)
    low, high = math.floor(min(values) / ten), math.ceil(max(values) / ten)
    return low * ten, max(high, low + 1) * ten
