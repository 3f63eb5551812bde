"""A gate between two commits: one outcome per benchmark, and whether the change may pass."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record

Outcome = Literal["improved", "unchanged", "regressed", "could_not_judge", "wrong", "failed", "missing", "new"]
Policy = Literal["pass", "warn", "fail"]


class Point(Record):
    """Time per call of a benchmark at one commit."""

    commit: str
    seconds: float


class GateRow(Record):
    """One benchmark. ratio: the base commit's time over the head's, above 1 if the head is faster. history: times at
    the last commits that gates of this machine measured, oldest first. flame: for a regression, the difference of both
    commits' flame graphs as text.
    """

    target: str
    outcome: Outcome
    sentence: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    at_least: bool = Field(default=False, description="The ratio is a lower bound.")
    noise_floor: float | None = None
    resolution: float | None = Field(
        default=None, description="A slowdown this large is detected in nine of ten gates."
    )
    spec_changed: bool = Field(default=False, description="The head's specification differs; the base's was used.")
    history: list[Point] = Field(default_factory=list)
    flame: str | None = None


class GateReport(Record):
    """The gate's answer. passed: None if nothing could be judged. reasons: why it did not pass, or warnings."""

    run_id: str
    passed: bool | None
    sentence: str = ""
    base: str = Field(description="Commit, 40 hexadecimal digits.")
    head: str = Field(description="Commit, or 'working tree'.")
    rows: list[GateRow]
    reasons: list[str]
    seconds: float
    cost_usd: float | None = Field(default=None, description="If a price per hour was given.")
    comment_path: str | None = Field(default=None, description="The pull request comment as Markdown.")
    junit_path: str | None = Field(default=None, description="The same as JUnit XML.")
    badge_path: str | None = Field(default=None, description="The same as a badge, SVG.")
