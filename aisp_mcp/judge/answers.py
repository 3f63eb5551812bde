"""Results that other processes have written down, compared. `WRITER`, which they load, needs no other package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aisp_mcp.judge.protocol import values
from aisp_mcp.judge.verifier.checks.values import difference as difference_of_values

WRITER = Path(values.__file__)


def written(value: Any) -> bytes | None:
    """The value as bytes; None if it is of a type that cannot be compared."""
    try:
        return values.encode(value)
    except (values.UnknownValueError, RecursionError):
        return None


def difference(expected: bytes, found: bytes, rtol: float | None = None, atol: float | None = None) -> str | None:
    """The difference between two results that were written down, or None. Floats may differ by a tolerance, or without
    one by what another order of operations explains. Raises ValueError for other bytes.
    """
    return difference_of_values(values.decode(expected), values.decode(found), rtol, atol)
