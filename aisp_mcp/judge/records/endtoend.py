"""The verdict on a pair inside its user's own program."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.records import Record


class EndToEnd(Record):
    """The pair's ratio measured alone, beside the ratio of the whole program or step."""

    program: str
    place: str = Field(description="What was replaced: MODULE:NAME, or the variable that the program reads.")
    metric: str = Field(description="time, or what the program prints.")
    verdict: str = Field(description="On the program: as of one pair, or failed.")
    arrival: Literal["arrives", "does not arrive", "too small", "not shown"] = Field(
        description="Of the change measured alone; too small: it is predicted to be within the margin."
    )
    passed: bool | None
    sentence: str
    alone: float | None = Field(description="Ratio of the pair measured alone.")
    ratio: float | None = Field(description="Of the program.")
    interval: Interval | None
    noise_floor: float | None
    predicted: float | None = Field(default=None, description="Of the program, from the share: Amdahl's law.")
    share: float | None = Field(default=None, description="Of the program's time in the baseline's calls.")
    calls: float | None = Field(default=None, description="Of the baseline in one run or step.")
    in_place: float | None = Field(default=None, description="Ratio of one call inside the program, from a single run.")
    before: float | None = Field(default=None, description="Median with the baseline; seconds, if the metric is time.")
    after: float | None = None
    runs: int = 0
    notes: list[str] = Field(default_factory=list)
