"""The answer of one step of a loop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record

Word = Literal["keep", "discard", "undecided", "broken"]
EXIT_CODES: dict[Word, int] = {"keep": 0, "discard": 3, "undecided": 4, "broken": 5}


class Kept(Record):
    """One step. gain: how much better the candidate is, as a fraction; negative if it is worse."""

    outcome: Word
    exit_code: int = Field(description="keep 0, discard 3, undecided 4, broken 5.")
    sentence: str
    step: int | None = Field(default=None, description="None if nothing was to be decided.")
    gain: float | None = None
    low: float | None = Field(default=None, description="Of the gain, 95 % at all looks together.")
    high: float | None = None
    pairs: int = 0
    more_runs: int | None = Field(default=None, description="Further runs of the program that would decide it.")
    noise: float | None = Field(default=None, description="Usual difference of two identical runs.")
    chance: float | None = Field(default=None, description="Of keeping this candidate if it is not better.")
    incumbent: str | None = None
    before: float | None = Field(default=None, description="Median of the metric, incumbent.")
    after: float | None = Field(default=None, description="Of the candidate.")
    require: dict[str, float] = Field(default_factory=dict, description="Medians of the candidate, by condition.")
    commit: str | None = Field(default=None, description="Of the kept candidate, with --commit.")
    saved: str | None = Field(default=None, description="Where git keeps the candidate.")
