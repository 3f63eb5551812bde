"""Two command lines compared as whole programs."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.records import Record


class CommandFigures(Record):
    """One command. Seconds of whole processes, start included; memory in bytes."""

    argv: list[str]
    median_s: float
    min_s: float
    max_s: float
    cpu_s: float = Field(description="Median CPU time of its whole tree.")
    peak_bytes: int = Field(description="Largest resident set of one of its processes.")
    runs: int
    user_s: float = Field(description="Median CPU time in user mode, the sandbox's included.")
    seconds: list[float] = Field(default_factory=list, exclude=True, description="Each run.")


class ScanPoint(Record):
    """One value of a scanned parameter, with the fields of a whole comparison."""

    value: str
    verdict: Verdict
    sentence: str
    ratio: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = None
    checked: int
    median_s: list[float] = Field(description="Of baseline and candidate.")
    baseline: CommandFigures | None = Field(default=None, exclude=True)
    candidate: CommandFigures | None = Field(default=None, exclude=True)


class CommandComparison(Record):
    """ratio is the baseline's time over the candidate's: above 1 the candidate is faster."""

    verdict: Verdict
    passed: bool | None = Field(description="null: inconclusive.")
    sentence: str
    ratio: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = None
    start_s: float = Field(description="An empty program under the same isolation: the start-up time of both.")
    checked: int = Field(description="Runs of the candidate whose output was compared.")
    check: str = Field(description="How outputs were compared.")
    isolation: str
    baseline: CommandFigures | None = None
    candidate: CommandFigures | None = None
    flags: list[Flag] = Field(default_factory=list)
    parameter: str | None = Field(default=None, description="Name of the scanned parameter.")
    scan: list[ScanPoint] = Field(default_factory=list, description="All values; the rest is of the worst of them.")
    files: list[str] = Field(default_factory=list, description="Requested files that were written.")
