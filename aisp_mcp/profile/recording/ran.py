"""The profiled program, if the call named a benchmark target instead of a command."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.records import Record

RoleName = Literal["baseline", "candidate"]
Depth = Literal["none", "minimal", "deep_dive", "roofline"]
Profiler = Literal["nsys", "torch", "memory", "stacks", "ncu"]


class Ran(Record):
    """Profiled program of a target, its isolation and its calls."""

    target: str
    side: RoleName
    size: str
    device: str
    isolation: Literal["L0", "L1", "L2", "L3"]
    calls: int = Field(default=0, description="In ranges named step, after a warm-up.")
    ranks: int = Field(default=1, description="Processes; the first one is profiled.")
    command: list[str] = Field(description="Runs the same calls again, under any profiler.")


class Pass(Record):
    """One program under one profiler. finding: the first named problem. error: the reason if there is no profile."""

    target: str
    side: RoleName
    profiler: Profiler
    isolation: str | None = None
    files: list[str] = Field(default_factory=list, description="In the folder.")
    ranks: int = Field(default=1, description="Processes; the first one is profiled.")
    finding: str | None = None
    error: str | None = None


class SidesDiffer(Record):
    """A candidate's trace compared with its baseline's. explained_by: kernel or phase of a device that changed most."""

    target: str
    file: str | None = Field(default=None, description="Flame-graph difference, in the folder.")
    explained_by: str | None = None
    error: str | None = None


class Passes(Record):
    """Profiles made after the run was stored; none of its times comes from them."""

    folder: str
    passes: list[Pass]
    differences: list[SidesDiffer] = Field(default_factory=list)
