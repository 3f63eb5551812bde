"""One door for a profile of any kind: what it is, and where the time went."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.profile.records import Source, Statement
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import READS, ReadingParams, S, tool


class Opening(Record):
    """opening: sentences, the most important first. frames: of a profile of stacks, by their own weight."""

    source: Source
    opening: list[Statement]
    diagnostics: list[str]
    frames: list[dict[str, Any]] = Field(default_factory=list)


class ReadParams(ReadingParams):
    profile: str = Field(
        min_length=1,
        max_length=4096,
        description="nsys, Kineto, JAX, rocprofv3, ncu, memory, speedscope, stacks, perf script; TensorBoard folder.",
    )
    limit: int = Field(default=10, ge=1, le=50, description="Most frames of a profile of stacks.")


@tool(cli="profile read", effect=READS, cost=S, next=("aisp_profile_kernels", "aisp_profile_hta"))
def aisp_profile_read(p: ReadParams, ctx: Context) -> Opening:
    """Read a profile of any kind: where the time went, in a few sentences whose numbers name their rows."""
    from aisp_mcp.profile import load
    from aisp_mcp.profile.insights.engine import insights
    from aisp_mcp.profile.overview import words
    from aisp_mcp.profile.pictures import flame
    from aisp_mcp.profile.readers.files import kind_of, look

    file = look(p.profile)
    if kind_of(file) == "stacks":
        found, unit = flame.stacks(file.path)
        rows, source = flame.hottest(found, unit, p.limit), file.source("stacks", "sampling profiler", None)
        return Opening(source=source, opening=words.of_stacks(found, unit), diagnostics=[], frames=rows)
    profile = load.load(file.path)
    said = words.opening(profile, insights(profile).found)
    return Opening(source=profile.source, opening=said, diagnostics=profile.diagnostics[:8])
