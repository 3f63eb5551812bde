"""Run a tool: here and now, or as a job with a ticket."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError, UnknownTool
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import arrays
from aisp_mcp.server.dispatch.arguments import validate
from aisp_mcp.server.dispatch.confirming import costly, refused
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure, internal, success
from aisp_mcp.server.dispatch.pending import JobPending, Pending, WaitPending, follow
from aisp_mcp.server.dispatch.plans import make_plan
from aisp_mcp.server.dispatch.wording import of_the_system
from aisp_mcp.server.registry import Ask, Call, JobParams, JobSpec, ReadingParams, Tool, Wait
from aisp_mcp.store.records.job import Job


def execute(tool_name: str, raw_args: dict[str, Any], ctx: Context) -> Envelope:
    """The tool's complete answer, computed in this process. Never raises; nothing is shortened.

    A worker process calls this for a job. Fronts call `start`, which knows tickets.
    """
    answer = _guarded(tool_name, raw_args, ctx, jobs=False)
    return answer if isinstance(answer, Envelope) else follow(tool_name, answer, ctx, answer.deadline_s)


def start(tool_name: str, raw_args: dict[str, Any], ctx: Context, confirmed: bool = False) -> Envelope | Pending:
    """The answer, or something to wait for: a tool that is a job is submitted and runs on, whoever asked.

    Never raises. An unknown tool is an envelope here; a front that has its own way to say so asks `offered` first.
    An answer with `confirm` set has done nothing: a front that can ask a person does, and calls again, confirmed.
    """
    return _guarded(tool_name, raw_args, ctx, jobs=True, confirmed=confirmed)


def _guarded(tool_name: str, raw_args: Any, ctx: Context, *, jobs: bool, confirmed: bool = False) -> Envelope | Pending:
    watch = Stopwatch(ctx)
    name = str(tool_name)[:80]
    try:
        tool = offered(tool_name, ctx)
        name = tool.name
        answer = _call(tool, raw_args, ctx, watch, jobs, confirmed)
        return (
            _guarded(answer.tool, answer.args, answer.context(ctx), jobs=jobs, confirmed=confirmed)
            if isinstance(answer, Call)
            else answer
        )
    except AispError as error:
        return failure(name, error, watch)
    except OSError as error:
        refused_by_system = of_the_system(error)
        return failure(name, refused_by_system, watch) if refused_by_system else internal(name, error, watch)
    except Exception as error:
        return internal(name, error, watch)


def offered(name: str, ctx: Context) -> Tool:
    """The tool of that name. Raises UnknownTool, also for one that this server was told not to offer."""
    tool = registry.get(name)
    if ctx.tools is not None and tool.name not in ctx.tools:
        hint = "It was started without this tool; see --toolsets, --tools, --exclude-tools and --read-only."
        raise UnknownTool("TOOL_NOT_OFFERED", f"This server does not offer {tool.name}.", hint)
    return tool


def _call(
    tool: Tool, raw: dict[str, Any], ctx: Context, watch: Stopwatch, jobs: bool, confirmed: bool
) -> Envelope | Pending | Call:
    params = validate(tool, raw)
    if confirmed and "confirm" in tool.params.model_fields:  # never in raw: what is offered instead would hold it
        params = params.model_copy(update={"confirm": True})
    if tool.job is not None and isinstance(params, JobParams):
        if params.dry_run:
            return success(tool.name, make_plan(tool, tool.job, params, ctx), watch)
        if jobs:
            return _submit(tool, tool.job, params, raw, ctx, watch)
    if ctx.call_in_subprocess is not None and isinstance(params, ReadingParams):
        return ctx.call_in_subprocess(tool.name, raw, ctx)
    result = tool.fn(params, ctx)
    if isinstance(result, Call):
        return result
    if isinstance(result, Wait):
        return WaitPending(ctx, tool, result, watch)
    if isinstance(result, Ask):
        return success(tool.name, result.result, watch).model_copy(update={"confirm": result.question})
    return success(tool.name, result, watch)


def _submit(
    tool: Tool, spec: JobSpec, params: JobParams, raw: dict[str, Any], ctx: Context, watch: Stopwatch
) -> Envelope | JobPending:
    """The plan is made first: a call that cannot work is refused here, before a process is started for it."""
    plan = make_plan(tool, spec, params, ctx)
    cost = costly(tool, params, plan, ctx)
    if cost is not None:
        return refused(tool, raw, cost, watch)
    if size := arrays.targets_per_task(ctx):
        return success(tool.name, arrays.submit(tool, params, plan, ctx, size), watch)
    job = ctx.jobs.submit(
        tool.name,
        params.model_dump(mode="json", exclude_unset=True, exclude={"wait_s", "dry_run", "confirm"}),
        timeout_s=plan.timeout_s,
        resources=tuple(plan.resources),
        principal=ctx.principal,
        env=ctx.job_env,
        work=lambda job: _here(tool, raw, ctx, job),
    )
    return JobPending(ctx, job.id, params.wait_s)


def _here(tool: Tool, raw: dict[str, Any], ctx: Context, job: Job) -> str:
    """The answer of a job that runs in this process, as JSON."""
    inner = copy.copy(ctx)
    inner.job_id, inner.run_dir, inner.root = job.id, Path(job.run_dir), ctx.root or ctx
    return execute(tool.name, raw, inner).model_dump_json(exclude_none=True)
