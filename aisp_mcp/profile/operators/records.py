"""The answer about targets made from a trace."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class TracedTarget(Record):
    """One operator with one signature. device_us and host_us: recorded microseconds of all its calls."""

    target: str
    operator: str
    inputs: list[str]
    calls: int
    device_us: float
    host_us: float
    file: str


class Coverage(Record):
    """Shares of the selected operators that became targets: of signatures, of calls, of device time."""

    signatures: int
    targets: int
    calls_share: float
    device_share: float | None = Field(description="None where the trace has no device time.")
    reasons: dict[str, int] = Field(description="Signatures that are not targets, by reason.")


class Traced(Record):
    """Targets from a trace."""

    folder: str
    targets: list[TracedTarget]
    coverage: Coverage
