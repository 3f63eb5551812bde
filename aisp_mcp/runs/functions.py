"""Measure two of the caller's own functions, and disclose what could not be hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.judge.functions import pair
from aisp_mcp.judge.functions.pair import Plan, Request
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.runs import growth
from aisp_mcp.runs import measure as runs
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Failure, Run
from aisp_mcp.store.records.run_kind import RunKind


def measure(ctx: Context, request: Request, options: Options) -> Run:
    """Write the pair into the run's folder and measure it. Raises as pair.plan, and Unavailable NO_GPU."""
    plan = pair.plan(request)
    if plan.device == "cuda" and options.device == "cpu":
        raise Unavailable("NO_GPU", "The inputs ask for cuda, and this machine has no GPU.", "Leave out device=cuda.")
    options = replace(options, device=plan.device or options.device)
    request, flag = growth.grown(ctx, request, options)
    plan = pair.plan(request)
    about = runs.About(RunKind.FUNCTIONS)
    run = runs.measure(ctx, [pair.write(plan, options.folder)], options, about=about)
    disclosed = [_disclosed(comparison, request, plan, flag) for comparison in run.comparisons]
    run = run.model_copy(update={"comparisons": disclosed, "failed": [_hinted(failure) for failure in run.failed]})
    ctx.store.save_run(run, ctx.job_id)
    return run


def _hinted(failure: Failure) -> Failure:
    """The failure with the remedy for functions."""
    if failure.code != "BASELINE_INPUT_MUTATED":
        return failure
    hint = "If changing its input is what the function is for, say so: x=randn(4096, in_place=True)."
    return failure.model_copy(update={"hint": hint})


def _disclosed(comparison: Comparison, request: Request, plan: Plan, grown: Flag | None) -> Comparison:
    sizes = {"sizes": dict(plan.sizes)} if plan.sizes else {}
    update: dict[str, Any] = {"disclosed": {**comparison.disclosed, "inputs": request.inputs, **sizes}}
    update["flags"] = [*comparison.flags, *filter(None, [grown])]
    if grown is not None:
        update["sentence"] = f"{comparison.sentence}; {growth.clause(grown)}"
    if plan.fixed:
        message = f"The candidate may know these inputs, which are the same in every call: {', '.join(plan.fixed)}."
        flag = Flag(code="inputs_not_fresh", severity="warn", message=message, evidence={"inputs": plan.fixed})
        update["flags"].append(flag)
    return comparison.model_copy(update=update)
