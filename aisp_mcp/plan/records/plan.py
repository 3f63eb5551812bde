"""The form of every planner's answer: a result, and what a reader needs to know before trusting it."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field

from aisp_mcp.records import Record

Result = TypeVar("Result", bound=Record)


class Band(Record):
    """The range that contained the true value in eight of ten held-out cases."""

    p10: float
    p90: float
    unit: str
    basis: str = Field(description="Data whose residuals give the width.")


class Source(Record):
    """One source of a number."""

    what: str
    as_of: str = Field(description="Date, ISO 8601.")


class Planned(Record, Generic[Result]):
    """A planner's answer. band is empty if the answer is exact arithmetic, which the assumptions then state."""

    answer: Result
    assumptions: list[str]
    band: dict[str, Band] = Field(description="Name of a figure of the answer to its p10-p90 range.")
    not_modelled: list[str]
    definitions: dict[str, str]
    check_here: str = Field(description="Command that measures it on this machine.")
    sources: list[Source]


class Item(Record):
    """One line of an itemised sum."""

    name: str
    bytes: int
    how: str
