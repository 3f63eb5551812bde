"""Correctness of a candidate over many sizes, without any timing."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.judge.records import Skip
from aisp_mcp.records import Record
from aisp_mcp.store.records.run import Failure


class Configuration(Record):
    """One candidate at one size. modes: kinds of inputs on which its outputs were compared with float64."""

    candidate: str
    sizes: dict[str, int | float | str]
    transposed: bool = Field(default=False, description="Inputs had the strides of column-major copies.")
    passed: bool
    modes: list[str]
    worst_error: float | None = Field(default=None, description="In units of the baseline's own error.")
    errors: list[str] = Field(default_factory=list, description="What was wrong, by kind of inputs.")


class FuzzReport(Record):
    """All configurations that were tried. passed: no candidate was wrong in any of them."""

    target: str
    passed: bool
    tested: int
    failing: list[Configuration]
    unusable: list[Failure] = Field(description="Sizes at which the specification itself cannot be used.")
    skipped: list[Skip] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list, description="What may explain a failure.")
    worst_error: float | None = None
    sizes_tested: list[dict[str, int | float | str]] = Field(default_factory=list)
    seconds: float
