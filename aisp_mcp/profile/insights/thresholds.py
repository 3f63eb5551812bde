"""The thresholds of verdicts: data, read once."""

from __future__ import annotations

from functools import cache
from typing import Any

from aisp_mcp.machine.datasheets.load import document


@cache
def table(section: str) -> dict[str, Any]:
    """One section of metrics.yaml: metrics, tree or rules."""
    values: dict[str, Any] = document("metrics.yaml", "aisp_mcp.profile.insights")[section]
    return values
