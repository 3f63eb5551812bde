"""Measurements of the machine itself, each against what it should reach."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from aisp_mcp.context import Context
from aisp_mcp.errors import Refused
from aisp_mcp.model.probe import Probe
from aisp_mcp.registry import MIN, RUNS, JobParams, JobSpec, tool


class DiskParams(JobParams):
    """Where and how much."""

    dir: str | None = Field(default=None, description="Folder to test; default: the artifact root.")
    size_mb: int = Field(default=256, ge=1, le=65_536)
    block_kb: int = Field(default=1024, ge=4, le=65_536, multiple_of=4)
    engine: Literal["auto", "fio", "builtin"] = "auto"


def _writable(folder: str | None, ctx: Context) -> Path:
    """The folder to write to. Raises Refused OUTSIDE_ROOTS unless it is the artifact root or was opened."""
    home = ctx.settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    if folder is None:
        return home
    chosen = Path(folder).expanduser().resolve()
    if any(chosen.is_relative_to(root.resolve()) for root in (home, *ctx.allow_write)):
        return chosen
    raise Refused(
        "OUTSIDE_ROOTS",
        f"{chosen} is outside {home} and of every folder opened for writing.",
        f"Restart with --allow-write {chosen}, or leave dir out.",
        (("aisp_hw_disk", {}),),
    )


@tool(
    cli="hw disk",
    effect=RUNS,
    cost=MIN,
    job=JobSpec(timeout_s=180, measures=True),
    next=("aisp_triage", "aisp_system_dependencies"),
)
def aisp_hw_disk(p: DiskParams, ctx: Context) -> Probe:
    """Sequential disk rates at queue depth 1, cached and uncached told apart; fio if installed, else O_DIRECT."""
    from aisp_mcp.probes.disk_probe import probe

    return probe(
        _writable(p.dir, ctx),
        p.size_mb * 2**20,
        p.block_kb * 1024,
        p.engine,
        budget_s=0.8 * (p.timeout_s or 180),
        progress=lambda share, said: ctx.progress(share, 1.0, said),
    )
