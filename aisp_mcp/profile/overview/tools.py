"""Read a profile of any kind: its format, and where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from aisp_mcp.profile.hangs.waiting import Wait
from aisp_mcp.profile.readers.files import ProfileFile
from aisp_mcp.profile.records import Source, Statement
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import READS, ReadingParams, S, tool


class Opening(Record):
    """opening: sentences, most important first. frames: for a profile of stacks, by self weight."""

    source: Source
    opening: list[Statement]
    diagnostics: list[str]
    frames: list[dict[str, Any]] = Field(default_factory=list)
    waits: list[Wait] = Field(
        default_factory=list, description="For dumps of several ranks: which rank waits for which."
    )
    held_up_by: list[int] = Field(
        default_factory=list, description="Ranks that others wait for, and that wait for none."
    )
    held_up: list[int] = Field(default_factory=list, description="Ranks that wait for them, also through others.")


class ReadParams(ReadingParams):
    profile: str = Field(
        min_length=1,
        max_length=4096,
        description="nsys, Kineto, JAX, rocprofv3, ncu, memory, speedscope, stacks, perf script, NCCL log, flight "
        "recorder dump; a folder: of TensorBoard, tlparse, or dumps of all ranks.",
    )
    limit: int = Field(default=10, ge=1, le=50, description="Most frames of a profile of stacks, or waits.")


def _hang(files: list[ProfileFile], path: Path, limit: int) -> Opening:
    from aisp_mcp.profile.hangs.read import read
    from aisp_mcp.profile.readers.files import kind_of

    hang = read(files, kind_of(files[0]), path)
    return Opening(
        source=hang.source, opening=hang.opening, diagnostics=hang.diagnostics, waits=hang.waits[:limit],
        held_up_by=hang.held_up_by, held_up=hang.held_up,
    )  # fmt: skip


def _compiled(folder: Path, limit: int) -> Opening:
    from aisp_mcp.profile.readers import tlparse

    source, rows = tlparse.compilations(folder)
    left = [f"Reader: {len(rows) - limit:,} further compilations are not listed."] if len(rows) > limit else []
    return Opening(
        source=source, opening=tlparse.opening(rows), diagnostics=left, frames=[row._asdict() for row in rows[:limit]]
    )


@tool(cli="profile read", effect=READS, cost=S, next=("aisp_profile_kernels", "aisp_profile_hta"))
def aisp_profile_read(p: ReadParams, ctx: Context) -> Opening:
    """Read a profile of any kind: where the time went, in a few sentences whose numbers name their rows."""
    from aisp_mcp.profile import load
    from aisp_mcp.profile.hangs import read as hangs
    from aisp_mcp.profile.insights.engine import insights
    from aisp_mcp.profile.overview import words
    from aisp_mcp.profile.pictures import flame
    from aisp_mcp.profile.readers import tlparse
    from aisp_mcp.profile.readers.files import kind_of, look

    if tlparse.is_output(Path(p.profile).expanduser()):
        return _compiled(Path(p.profile).expanduser(), p.limit)
    if (path := Path(p.profile).expanduser()).is_dir() and (files := hangs.in_folder(path)):
        return _hang(files, path, p.limit)
    file = look(p.profile)
    if kind_of(file) in ("flight", "nccl"):
        return _hang([file], file.path, p.limit)
    if kind_of(file) == "stacks":
        notes: list[str] = []
        weights, unit = flame.stacks(file.path, notes)
        rows, source = flame.hottest(weights, unit, p.limit), file.source("stacks", "sampling profiler", None)
        return Opening(source=source, opening=words.of_stacks(weights, unit, notes), diagnostics=notes, frames=rows)
    profile = load.load(file.path)
    statements = words.opening(profile, insights(profile).found)
    return Opening(source=profile.source, opening=statements, diagnostics=profile.diagnostics[:8])
