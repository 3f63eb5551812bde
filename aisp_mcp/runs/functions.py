"""Measure two functions of the caller's own, and disclose what could not be kept secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records.run import Run
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.runs import measure as runs
from aisp_mcp.server.context import Context
from aisp_mcp.suites.functions import pair
from aisp_mcp.suites.functions.pair import Plan, Request


def measure(ctx: Context, request: Request, options: Options) -> Run:
    """Write the pair into the run's folder and measure it. Raises as pair.plan, and Unavailable NO_GPU."""
    plan = pair.plan(request)
    if plan.device == "cuda" and options.device == "cpu":
        raise Unavailable("NO_GPU", "The inputs ask for cuda, and this machine has no GPU.", "Leave out device=cuda.")
    options = replace(options, device=plan.device or options.device)
    run = runs.measure(ctx, [pair.write(plan, options.folder)], options)
    if run.comparisons:
        run = run.model_copy(update={"comparisons": [_disclosed(one, request, plan) for one in run.comparisons]})
        ctx.store.save_run(run, ctx.job_id)
    return run


def _disclosed(comparison: Comparison, request: Request, plan: Plan) -> Comparison:
    update: dict[str, Any] = {"disclosed": {**comparison.disclosed, "inputs": request.inputs}}
    if plan.fixed:
        message = f"The candidate may know these inputs, which are the same in every call: {', '.join(plan.fixed)}."
        flag = Flag(code="inputs_not_fresh", severity="warn", message=message, evidence={"inputs": plan.fixed})
        update["flags"] = [*comparison.flags, flag]
    return comparison.model_copy(update=update)
