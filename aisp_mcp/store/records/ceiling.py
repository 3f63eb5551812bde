"""A single number measured on this machine."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.records import Record


class Ceiling(Record):
    """The best value of its kind seen on a device; measured_at is UTC seconds since the epoch."""

    kind: str
    device: str
    value: float
    unit: str
    measured_at: float
    detail: dict[str, Any] = Field(default_factory=dict)
