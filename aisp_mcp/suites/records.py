"""Targets that can be measured with their variants, expectations of candidates, and grades against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from aisp_mcp.records import Record


def _listed(given: Any) -> Any:
    """Accept a single folder in place of a list."""
    return [given] if isinstance(given, str) else given


BenchRoots = Annotated[list[str] | None, BeforeValidator(_listed)]  # folders of suites


class Variant(Record):
    """One candidate file. name is empty for the plain `optimized_<target>.py`."""

    name: str
    path: str
    summary: str
    needs: dict[str, int | float | str] = Field(
        default_factory=dict, description="What this variant needs beyond its target."
    )
    problem: str | None = Field(default=None, description="Why the file cannot be used, if it cannot.")


class Target(Record):
    """One baseline with its candidates, known by path: `ch07:row_sum`. Nothing is imported to find it."""

    name: str = Field(description="chapter:name")
    chapter: str
    path: str
    summary: str
    goal: str = "speed"
    needs: dict[str, int | float | str] = Field(
        default_factory=dict, description="As declared: gpus, sm, memory_gb, packages (comma separated)."
    )
    variants: list[Variant] = Field(default_factory=list)
    problem: str | None = Field(default=None, description="Why the file cannot be used, if it cannot.")


class Chapter(Record):
    """A folder of benchmarks: a chapter or a lab. topic is the first heading of its README, if it has one."""

    name: str
    topic: str | None = None
    targets: int
    variants: int
    problems: int = Field(default=0, description="Targets or variants whose file cannot be used.")


Direction = Literal["faster", "same", "slower"]
Mark = Literal["met", "contradicted", "undecided", "informational", "no_expectation"]


class Expected(Record):
    """One entry of expect.yaml. range: bounds of the ratio of baseline to candidate time."""

    direction: Direction
    range: tuple[float, float] | None = None
    source: str | None = Field(default=None, max_length=300, description="Where the figures are from.")
    informational: str | None = Field(default=None, max_length=300, description="Why it is not graded.")


class _Subject(Record):
    candidate: str
    device: str


class Expectation(Expected, _Subject):
    """An entry with its candidate, as chapter:name, and class of device. path: its file, for who rewrites it."""

    path: str = Field(exclude=True)


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
