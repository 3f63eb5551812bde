"""Results that other processes have written down, compared. `WRITER`, which they load, needs no other package."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.judge.protocol import values
from aisp_mcp.judge.verifier.checks.values import difference as difference_of_values

WRITER = Path(values.__file__)


def difference(expected: bytes, found: bytes) -> str | None:
    """How two results that WRITER wrote differ, floats apart that another order of operations explains. Raises
    ValueError for other bytes.
    """
    return difference_of_values(values.decode(expected), values.decode(found))
