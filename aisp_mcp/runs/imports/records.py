"""Records of another tool's result file, and of the comparison of two."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record

Better = Literal["lower", "higher", "unknown"]


class Figure(Record):
    """One metric of one benchmark. value, samples and spread are in `unit`; times are in seconds."""

    name: str = Field(description="The benchmark, as the file names it.")
    metric: str = Field(description="Such as time, ttft, tpot, throughput.")
    unit: str
    better: Better
    value: float
    statistic: str = Field(description="What value is: mean, median, min, total, or a percentile.")
    samples: list[float] = Field(default_factory=list)
    sample_of: str | None = Field(default=None, description="What one sample is: a run, a round, a request.")
    count: int | None = Field(default=None, description="Samples the tool took, whether or not the file contains them.")
    spread: float | None = Field(default=None, description="Standard deviation that the file states.")
    parameters: dict[str, str] = Field(default_factory=dict)
    failed: str | None = Field(default=None, description="Why the value measures no successful run, if it does not.")
    doubt: str | None = Field(default=None, description="Why the value supports no better or worse.")

    @property
    def key(self) -> tuple[str, str, str]:
        """The parts that must be equal in two files for their values to be compared."""
        return self.name, self.metric, self.settings

    @property
    def settings(self) -> str:
        """The parameters in one line."""
        return ", ".join(f"{name}={value}" for name, value in sorted(self.parameters.items()))


class Contents(Record):
    """A result file. measured_at: UTC seconds, if the file contains them. notes: omissions, with reasons."""

    figures: list[Figure]
    tool_version: str | None = None
    machine: str | None = None
    commit: str | None = None
    measured_at: float | None = None
    notes: list[str] = Field(default_factory=list)


class Import(Record):
    """A stored file: measured elsewhere, never judged here. The same bytes always have the same id."""

    id: str
    format: str
    label: str
    path: str
    sha256: str
    imported_at: float
    contents: Contents


class Line(Record):
    """A figure in brief."""

    name: str
    metric: str
    value: float
    unit: str
    statistic: str
    samples: int = Field(description="Raw samples in the file.")
    settings: str


class Imported(Record):
    """The answer of an import."""

    id: str
    sentence: str
    format: str
    label: str
    standing: str = Field(description="How far these figures can be trusted.")
    machine: str | None
    commit: str | None
    measured_at: str | None = Field(description="UTC, as the file says.")
    figures: int
    lines: list[Line] = Field(description="The first figures.")
    notes: list[str]


class FigureDifference(Record):
    """One figure in two files. ratio: candidate over baseline, in the figure's own unit."""

    name: str
    metric: str
    unit: str
    baseline: float
    candidate: float
    ratio: float | None = Field(description="None where a side measured a failure or 0.")
    interval: list[float] = Field(description="95 % bootstrap interval of the ratio of medians; empty without samples.")
    finding: Literal["better", "worse", "different", "not resolved", "no interval", "not comparable"]
    samples: list[int]
    settings: str
    why: str | None = Field(default=None, description="Why the two are not comparable.")


class ImportComparison(Record):
    """Two result files side by side. Not a verdict: both were measured elsewhere."""

    sentence: str
    baseline: str
    candidate: str
    differences: list[FigureDifference] = Field(description="Largest change first.")
    only_in_baseline: list[str] = Field(description="The first of the figures that the other lacks.")
    only_in_candidate: list[str]
    missing: list[str] = Field(description="What intervals would need, where there are none.")
    cautions: list[str]
    notes: list[str] = Field(description="What each file says against its own figures.")
    definition: str


class Point(Record):
    """A figure at one time. at: UTC of the measurement, else of the import."""

    at: str
    import_id: str
    label: str
    machine: str | None
    commit: str | None
    value: float


class FigureHistory(Record):
    """One figure over all imports that contain it, oldest first."""

    name: str
    metric: str
    unit: str
    better: Better
    settings: str
    points: list[Point]


class Imports(Record):
    """Stored imports, newest first; with a name, the history of the matching figures."""

    imports: list[Imported]
    history: list[FigureHistory]
    hint: str | None = None
