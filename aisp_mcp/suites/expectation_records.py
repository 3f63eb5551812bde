"""Expectations of a candidate on a class of device, and the grade of a verdict against them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record

Direction = Literal["faster", "same", "slower"]
Mark = Literal["met", "contradicted", "undecided", "informational", "no_expectation"]


class Expected(Record):
    """One entry of expect.yaml. range: bounds of the ratio of baseline to candidate time."""

    direction: Direction
    range: tuple[float, float] | None = None
    source: str | None = Field(default=None, max_length=300, description="Where the figures are from.")
    informational: str | None = Field(default=None, max_length=300, description="Why it is not graded.")


class Expectation(Expected):
    """An entry with its origin: candidate as chapter:name, class of device, file."""

    candidate: str
    device: str
    path: str


class Grade(Record):
    """One verdict against its expectation; `undecided` if the measurement was too noisy."""

    candidate: str
    device: str | None = Field(description="The class of device whose entry counts.")
    mark: Mark
    expected: Direction | None
    range: tuple[float, float] | None
    source: str | None
    verdict: str
    ratio: float | None
    interval: list[float]
    why: str
