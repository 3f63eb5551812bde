"""Tools whose results have charts, without measuring anything: a job with verdicts, and an answer of any text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chart_rulings import rulings

from aisp_mcp.errors import Unavailable
from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import MIN, MS, READS, RUNS, JobParams, JobSpec, tool


class Drawn(Record):
    rulings: list[dict[str, Any]]


class VerdictParams(Params):
    name: str
    fail: bool = False


@tool(cli="draw verdicts", effect=READS, cost=MS, chart="verdicts")
def aisp_draw_verdicts(p: VerdictParams, ctx: Context) -> Drawn:
    """Two verdicts, one under the name given."""
    if p.fail:
        raise Unavailable("NO_GPU", f"Nothing to draw for {p.name}.", "Look elsewhere.")
    return Drawn(rulings=rulings(p.name))


class GateParams(JobParams):
    gate: str


@tool(cli="draw later", effect=RUNS, cost=MIN, job=JobSpec(timeout_s=60), chart="verdicts")
def aisp_draw_later(p: GateParams, ctx: Context) -> Drawn:
    """Verdicts as soon as there is a byte in the pipe."""
    ctx.progress(1, 3, "waiting at the gate")
    with Path(p.gate).open("rb", buffering=0) as pipe:
        pipe.read(1)
    return Drawn(rulings=rulings("ch01:late"))
