"""Keep or discard a change."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from aisp_mcp.gate.keep.records import Kept
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, JobParams, JobSpec, tool


class KeepParams(JobParams):
    command: list[str] = Field(min_length=1, max_length=1000, description="No shell.")
    metric: str = Field(
        default="time",
        max_length=1000,
        description="time, cpu, memory, a printed name, or a regex.",
    )
    better: Literal["lower", "higher"] = "lower"
    require: list[str] = Field(default_factory=list, max_length=20, description="Conditions: 'acc >= 0.93'.")
    against: str | None = Field(default=None, max_length=4096, description="Commit, folder or step-N.")
    gain: float = Field(default=0.02, gt=0, description="Least that counts.")
    budget: float = Field(default=0.01, gt=0, le=0.5, description="Chance of a false keep.")
    runs: int = Field(default=40, ge=1)
    share: list[str] = Field(default_factory=list, max_length=50, description="Ignored paths.")
    fixed: list[str] = Field(default_factory=list, max_length=50, description="Paths that may not change.")
    build: str | None = Field(default=None, max_length=4000, description="Shell line, run once.")
    output: str | None = Field(default=None, max_length=1000)
    repo: str | None = Field(default=None, max_length=4096)
    commit: bool = Field(default=False, description="Commit or revert.")
    loop: str = Field(default="loop", max_length=64)
    run_timeout_s: float = Field(default=600, gt=0)


@tool(cli="keep", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=86_400, measures=True), verdict=True)
def aisp_keep(p: KeepParams, ctx: Context) -> Kept:
    """Keep or discard a change: measure the working tree against the last commit."""
    from aisp_mcp.gate.keep import step

    fields = {name: getattr(p, name) for name in KeepParams.model_fields if name in step.Request.__dataclass_fields__}
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    folder = Path(p.repo or ".").expanduser()
    return step.step(step.Request(**{**fields, **lists}), folder, ctx.settings.home, ctx.progress)
