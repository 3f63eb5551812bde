"""The verdict on a pair of functions over a workload."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.records import Record


class Regime(Record):
    """One signature of the workload, measured as a pair of its own. share: of the time of all measured regimes."""

    label: str
    launches: float
    share: float
    verdict: str
    ratio: float | None
    interval: Interval | None
    sentence: str


class Workload(Record):
    """Baseline time over candidate time in the whole workload."""

    source: str
    verdict: str = Field(
        description="As of one pair, or trade-off: faster over all, but a regime that matters is slower."
    )
    passed: bool | None
    sentence: str
    ratio: float | None
    interval: Interval | None
    worst: str = Field(description="The regime with the lowest ratio.")
    regimes: list[Regime] = Field(description="The one that takes most time first.")
    step_share: float | None = Field(default=None, description="Of the function in the recorded step.")
    step_ratio: float | None = Field(default=None, description="The step's ratio, if nothing else changes.")
    notes: list[str] = Field(default_factory=list)
