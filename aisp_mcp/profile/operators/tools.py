"""Operators of traces as benchmark targets."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.operators.records import Traced
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import RUNS, JobParams, JobSpec, Plan, S, tool


class FromTraceParams(JobParams):
    profile: str = Field(max_length=4096, description="Kineto trace with shapes (record_shapes=True).")
    to: str | None = Field(default=None, max_length=4096, description="Folder for the targets. Default: the run's.")
    op: str = Field(default="aten::*", max_length=200, description="Operator or pattern, such as aten::mm.")
    limit: int = Field(default=5, ge=1, le=200, description="Most signatures, by device time.")


def _estimate_trace(p: FromTraceParams, _: Context) -> Plan:
    """Refuse a trace that is not a readable file before a job starts. Raises UsageError NO_PROFILE."""
    from aisp_mcp.suites.adapters.base import readable

    path = Path(p.profile).expanduser()
    if not (readable(path) and path.is_file()):
        message = f"There is no file that can be read at {p.profile[:200]!r}."
        raise UsageError("NO_PROFILE", message, "Give the path of a Kineto trace on this machine.")
    return Plan(argv=[], timeout_s=p.timeout_s or 600, resources=[])


@tool(
    cli="bench from-trace",
    effect=RUNS,
    cost=S,
    job=JobSpec(timeout_s=600),
    needs=("torch",),
    estimate=_estimate_trace,
    next=("aisp_verify_candidate",),
)
def aisp_benchmark_from_trace(p: FromTraceParams, ctx: Context) -> Traced:
    """Make benchmark targets of a trace's operators: recorded shapes, strides and types, fresh values."""
    from aisp_mcp.profile.operators import targets
    from aisp_mcp.server import files

    return targets.targets(
        p.profile,
        p.op,
        p.limit,
        files.folder(p.to, (ctx.run_dir or ctx.settings.home / "runs" / "direct") / "traced", ctx.allow_write),
    )
