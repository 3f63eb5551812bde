"""Records of a first suite."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.server.files import Written

Kind = Literal["pairs", "pytest", "asv", "programs"]


class LeftOut(Record):
    """Something that was found but is not in the suite."""

    name: str
    reason: str


class GateInit(Record):
    """A suite that was written. kind: aisp's pairs, tests with pytest-benchmark's fixture, asv's suite, or programs."""

    kind: Kind
    benchmarks: list[str] = Field(description="Names of benchmarks that ran once on this machine.")
    left_out: list[LeftOut] = Field(default_factory=list)
    files: list[Written]
    command: str = Field(description="Judges the working tree against a commit.")
    note: str
