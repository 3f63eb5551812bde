"""Run a tool: here and now, or as a job with a ticket."""

from __future__ import annotations

from typing import Any

from aisp_mcp import registry
from aisp_mcp.context import Context
from aisp_mcp.dispatch.arguments import validate
from aisp_mcp.dispatch.envelopes import Stopwatch, failure, internal, success
from aisp_mcp.dispatch.pending import JobPending, Pending, WaitPending, follow
from aisp_mcp.dispatch.plans import make_plan
from aisp_mcp.errors import AispError
from aisp_mcp.model.base import Params
from aisp_mcp.model.envelope import Envelope
from aisp_mcp.registry import JobParams, JobSpec, Tool, Wait


def execute(tool_name: str, raw_args: dict[str, Any], ctx: Context) -> Envelope:
    """The tool's complete answer, computed in this process. Never raises; nothing is shortened.

    A worker process calls this for a job. Fronts call `start`, which knows tickets.
    """
    answer = _guarded(tool_name, raw_args, ctx, jobs=False)
    return answer if isinstance(answer, Envelope) else follow(tool_name, answer, ctx, answer.deadline_s)


def start(tool_name: str, raw_args: dict[str, Any], ctx: Context) -> Envelope | Pending:
    """The answer, or something to wait for: a tool that is a job is submitted and runs on, whoever asked.

    Never raises. An unknown tool is an envelope here; a front that has its own way to say so asks `registry.get` first.
    """
    return _guarded(tool_name, raw_args, ctx, jobs=True)


def _guarded(tool_name: str, raw_args: dict[str, Any], ctx: Context, jobs: bool) -> Envelope | Pending:
    watch = Stopwatch(ctx)
    name = str(tool_name)[:80]
    try:
        tool = registry.get(tool_name)
        name = tool.name
        return _call(tool, validate(tool, raw_args), ctx, watch, jobs)
    except AispError as error:
        return failure(name, error, watch)
    except Exception as error:
        return internal(name, error, watch)


def _call(tool: Tool, params: Params, ctx: Context, watch: Stopwatch, jobs: bool) -> Envelope | Pending:
    if tool.job is not None and isinstance(params, JobParams):
        if params.dry_run:
            return success(tool.name, make_plan(tool, tool.job, params, ctx), watch)
        if jobs:
            return _submit(tool, tool.job, params, ctx)
    result = tool.fn(params, ctx)
    if isinstance(result, Wait):
        return WaitPending(ctx, tool, result, watch)
    return success(tool.name, result, watch)


def _submit(tool: Tool, spec: JobSpec, params: JobParams, ctx: Context) -> JobPending:
    """The plan is made first: a call that cannot work is refused here, before a process is started for it."""
    plan = make_plan(tool, spec, params, ctx)
    job = ctx.jobs.submit(
        tool.name,
        params.model_dump(mode="json", exclude_unset=True, exclude={"wait_s", "dry_run"}),
        timeout_s=plan.timeout_s,
        resources=tuple(plan.resources),
        principal=ctx.principal,
        env=ctx.job_env,
    )
    return JobPending(ctx, job.id, params.wait_s)
