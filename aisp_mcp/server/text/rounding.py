"""Numbers of an answer at the precision that readers need."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from pydantic import BaseModel

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
