"""Targets that can be measured, found by path, and their variants."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from aisp_mcp.records import Record


def _listed(given: Any) -> Any:
    """Accept a single folder in place of a list."""
    return [given] if isinstance(given, str) else given


BenchRoots = Annotated[list[str] | None, BeforeValidator(_listed), Field(description="Folders of suites.")]


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
