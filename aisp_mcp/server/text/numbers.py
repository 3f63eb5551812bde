"""Numbers for readers: formatted for a report, or rounded in an answer. Missing values are an en dash, never a zero."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel

MISSING = "–"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


HOLLOW = "○ "  # prefix of a verdict that rests on one replicate


def ratio(value: float | None, at_least: bool = False) -> str:
    """Three decimals near 1, fewer further away: 1.013×, 2.74×, 127×, 20,900×. at_least: see bound()."""
    if value is None or not math.isfinite(value):
        return MISSING
    return bound(value) + _ratio(value) if at_least else _ratio(value)


def bound(value: float) -> str:
    """The words before a ratio that proves only a part of a larger gain, or of a larger loss."""
    return "at least " if value >= 1.0 else "at most "


def verdict(word: str, provisional: bool = False) -> str:
    """The word; with one replicate, hollow and labelled as provisional."""
    return f"{HOLLOW}{word} (provisional)" if provisional else word


def _ratio(value: float) -> str:
    if 0.8 < value < 1.25:
        return f"{value:.3f}×"
    if 1000 <= value < 1e6:
        return f"{round(value, 2 - math.floor(math.log10(value))):,.0f}×"
    return f"{value:.2f}×" if 0.1 < value < 100 else f"{value:.3g}×"


def seconds(value: float | None) -> str:
    """A duration in s, ms, µs or ns with four digits."""
    if value is None or not math.isfinite(value):
        return MISSING
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"


def rate(value: float | None, unit: str) -> str:
    """A rate with a decimal prefix: 3.41 GB/s; before a word, the prefix is separate: 3.41 k tokens/s."""
    apart = " " if unit[:1].islower() else ""
    if value is None or not math.isfinite(value):
        return MISSING
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{apart}{unit}"
    return f"{value:.3g} {unit}"


def quantity(value: float | None, unit: str) -> str:
    """A measured value in the unit of its record: s, FLOP/s, B/s and the like."""
    return seconds(value) if unit == "s" else rate(value, unit)


def size(value: int | None) -> str:
    """Bytes with a binary prefix."""
    if value is None:
        return MISSING
    for power, prefix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if abs(value) >= 1024**power:
            return f"{value / 1024**power:.1f} {prefix}B"
    return f"{value} B"


def percent(value: float | None) -> str:
    """A fraction as per cent with two digits; above 99, with all digits before the point."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{100 * value:.2g} %" if abs(value) < 0.995 else f"{100 * value:,.0f} %"


def moment(at: float) -> str:
    """UTC time of a record."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


R = TypeVar("R", bound=BaseModel)
DIGITS = 4


def rounded(record: R) -> R:
    """The record with every float at four significant digits; counts stay whole."""
    return type(record).model_validate(_walk(record.model_dump()))


def _walk(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _walk(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


SHOWN_DIGITS, SHOWN_DECIMALS = 6, 3


def shown(value: Any) -> Any:
    """Plain data with floats rounded for models: six significant digits, and at least three decimals.

    Times since the epoch thus keep their milliseconds. Whole numbers stay as they are.
    """
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, float) and value and math.isfinite(value):
        return round(value, max(SHOWN_DECIMALS, SHOWN_DIGITS - 1 - math.floor(math.log10(abs(value)))))
    return value
