"""Set up a gate in a repository that has none."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from aisp_mcp.gate.setup.records import GateInit
from aisp_mcp.records import Params
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, RUNS, tool


class GateInitParams(Params):
    to: str | None = Field(default=None, max_length=4096, description="The repository.")


@tool(cli="gate init", effect=RUNS, cost=MIN, next=("aisp_benchmark_gate",))
def aisp_gate_init(p: GateInitParams, ctx: Context) -> GateInit:
    """Write a first suite and a workflow, from a repository's pytest-benchmark, asv or programs."""
    from aisp_mcp.gate.setup import suite

    return suite.init(Path(p.to or ".").expanduser(), ctx.allow_write)
