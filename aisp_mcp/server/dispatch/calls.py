"""The path of a call, top to bottom: validate, confirm and plan, run or submit, wrap in an envelope.

`start` and `execute` are the two entries. A call that needs a person's consent is answered with the question. A dry run
is answered with the plan of its job: command, limits, resources. A job is followed with `pending.follow`; the front
shortens the answer last.
"""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import AispError, Refused, Unavailable, UnknownTool, UsageError
from aisp_mcp.process import python
from aisp_mcp.records import Params
from aisp_mcp.server import registry
from aisp_mcp.server.context import DESTINATIONS, Context
from aisp_mcp.server.dispatch import arrays
from aisp_mcp.server.dispatch.arguments import of_the_system, validate
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure, internal, success
from aisp_mcp.server.dispatch.pending import JobPending, Pending, WaitPending, follow, in_queue
from aisp_mcp.server.registry import Ask, Call, JobParams, JobSpec, Plan, ReadingParams, Tool, Wait
from aisp_mcp.settings import ClusterSettings
from aisp_mcp.store.records.job import Job


@dataclass
class _Request:
    """One call of one tool. as_job: submit a job tool rather than run it here."""

    tool: Tool
    raw: dict[str, Any]
    ctx: Context
    watch: Stopwatch
    as_job: bool
    confirmed: bool


def execute(tool_name: str, raw_args: dict[str, Any], ctx: Context) -> Envelope:
    """The tool's complete answer, computed in this process. Never raises; nothing is shortened.

    A worker process calls this for a job. Fronts call `start`, which returns tickets.
    """
    answer = _answer(tool_name, raw_args, ctx, as_job=False, confirmed=False)
    return answer if isinstance(answer, Envelope) else follow(tool_name, answer, ctx, answer.deadline_s)


def start(tool_name: str, raw_args: dict[str, Any], ctx: Context, confirmed: bool = False) -> Envelope | Pending:
    """The answer, or something to wait for: a job tool is submitted and keeps running if the caller goes away.

    Never raises. An unknown tool is an envelope; a front with its own form for that error calls `offered` first. An
    answer with `confirm` set has had no effect: a front that can ask a person does so and calls again, confirmed.
    """
    return _answer(tool_name, raw_args, ctx, as_job=True, confirmed=confirmed)


def offered(name: str, ctx: Context) -> Tool:
    """The tool of that name. Raises UnknownTool, also for a tool that this server was started without."""
    tool = registry.get(name)
    if ctx.tools is not None and tool.name not in ctx.tools:
        hint = "It was started without this tool; see --toolsets, --tools, --exclude-tools and --read-only."
        raise UnknownTool("TOOL_NOT_OFFERED", f"This server does not offer {tool.name}.", hint)
    return tool


def _answer(tool_name: str, raw_args: Any, ctx: Context, *, as_job: bool, confirmed: bool) -> Envelope | Pending:
    """The whole path of a call; every exception becomes an envelope."""
    watch = Stopwatch(ctx)
    name = str(tool_name)[:80]
    try:
        tool = offered(tool_name, ctx)
        name = tool.name
        if (implied := registry.implied(tool_name)) and isinstance(raw_args, dict):
            raw_args = {**implied, **raw_args}
        request = _Request(tool, raw_args, ctx, watch, as_job, confirmed)
        params = _validated(request)
        answer = _planned(request, params) or _run(request, params)
        if isinstance(answer, Call):
            return _answer(answer.tool, answer.args, answer.context(ctx), as_job=as_job, confirmed=confirmed)
        return answer
    except AispError as error:
        return failure(name, error, watch)
    except OSError as error:
        system_error = of_the_system(error)
        return failure(name, system_error, watch) if system_error else internal(name, error, watch)
    except Exception as error:
        return internal(name, error, watch)


def _validated(request: _Request) -> Params:
    params = validate(request.tool, request.raw)
    # Not added to the raw arguments: a next step that repeats them would then contain it.
    if request.confirmed and "confirm" in request.tool.params.model_fields:
        return params.model_copy(update={"confirm": True})
    return params


def _planned(request: _Request, params: Params) -> Envelope | JobPending | None:
    """The answer for a job tool: its plan, a question about its cost, or the submitted job. None if it runs here.

    The plan is made before a process is started, so that an impossible call is refused at once.
    """
    tool, ctx = request.tool, request.ctx
    if tool.job is None or not isinstance(params, JobParams) or not (params.dry_run or request.as_job):
        return None
    plan = make_plan(tool, tool.job, params, ctx)
    if params.dry_run:
        return success(tool.name, plan, request.watch)
    cost = costly(tool, params, plan, ctx)
    if cost is not None:
        return refused(tool, request.raw, cost, request.watch)
    return _submit(request, params, plan)


def _submit(request: _Request, params: JobParams, plan: Plan) -> Envelope | JobPending:
    tool, ctx = request.tool, request.ctx
    if size := arrays.targets_per_task(ctx):
        return success(tool.name, arrays.submit(tool, params, plan, ctx, size), request.watch)
    job = ctx.jobs.submit(
        tool.name,
        params.model_dump(mode="json", exclude_unset=True, exclude={"wait_s", "dry_run", "confirm"}),
        timeout_s=plan.timeout_s,
        resources=() if ctx.submission else tuple(plan.resources),  # a submission waits for its device when it measures
        principal=ctx.principal,
        env=ctx.job_env,
        work=lambda job: _run_in_process(tool, request.raw, ctx, job),
        tell=lambda job: _tell(job, ctx),
        submission=ctx.submission,
        commits={name: plan.details[name] for name in ("repository", "commits") if name in plan.details},
    )
    return JobPending(ctx, job.id, params.wait_s)


def _run(request: _Request, params: Params) -> Envelope | WaitPending | Call:
    tool, ctx, watch = request.tool, request.ctx, request.watch
    if ctx.call_in_subprocess is not None and isinstance(params, ReadingParams):
        return ctx.call_in_subprocess(tool.name, request.raw, ctx)
    result = tool.fn(params, ctx)
    if isinstance(result, Call):
        return result
    if isinstance(result, Wait):
        return WaitPending(ctx, tool, result, watch)
    if isinstance(result, Ask):
        return success(tool.name, result.result, watch).model_copy(update={"confirm": result.question})
    return success(tool.name, result, watch)


def _tell(job: Job, ctx: Context) -> None:
    """Show what a job waits for that will run in this process."""
    if waits := in_queue(job):
        ctx.progress(waits.done, waits.total, waits.message)


def _run_in_process(tool: Tool, raw: dict[str, Any], ctx: Context, job: Job) -> str:
    """The answer of a job that runs in this process, as JSON."""
    job_ctx = copy.copy(ctx)
    job_ctx.job_id, job_ctx.run_dir, job_ctx.root = job.id, Path(job.run_dir), ctx.root or ctx
    return execute(tool.name, raw, job_ctx).model_dump_json(exclude_none=True)


CODE = "CONFIRM_FIRST"


def costly(tool: Tool, params: JobParams, plan: Plan, ctx: Context) -> str | None:
    """Cost of the call as a sentence; None if it is low or confirmed."""
    if params.confirm or plan.estimate_s is None:
        return None
    gpus = sum(name.startswith("gpu:") for name in plan.resources)
    if plan.estimate_s * max(1, gpus) < ctx.settings.confirm_device_s:
        return None
    devices = f" and holds {gpus} GPUs" if gpus > 1 else ""
    return f"{tool.name} is expected to take {_duration(plan.estimate_s)}{devices}."


def refused(tool: Tool, raw: dict[str, Any], cost: str, watch: Stopwatch) -> Envelope:
    """The answer if no person can be asked: the cost, and the call that runs it anyway."""
    error = Refused(
        CODE,
        f"{cost} Nothing was started.",
        "Ask the user; if they agree, call again with confirm=true. dry_run=true shows the whole plan.",
        [(tool.name, {**raw, "confirm": True})],
    )
    return failure(tool.name, error, watch).model_copy(update={"confirm": f"{cost} Run it?"})


def declined(unasked: Envelope, ctx: Context) -> Envelope:
    """The answer if the person did not agree."""
    error = Refused("DECLINED", "The user did not agree, and nothing was done.", "Do not call it again unasked.")
    return failure(unasked.tool, error, Stopwatch(ctx))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.1g} s" if seconds < 1 else f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"


def make_plan(tool: Tool, spec: JobSpec, params: JobParams, ctx: Context) -> Plan:
    """The tool's own estimate, completed. Raises what the estimate raises, as the run itself would."""
    from aisp_mcp.jobs.executors.placement import chosen_executor, is_elsewhere

    executor = chosen_executor({**os.environ, **ctx.job_env})
    if not is_elsewhere(executor):
        return _plan(tool, spec, params, ctx)
    if spec.here:
        raise UsageError("BAD_PLACEMENT", f"{tool.name} cannot run on {executor}: {spec.here}.", "--executor local")
    try:
        plan = _plan(tool, spec, params, ctx)
    except Unavailable:  # the other machine may have what this one lacks
        timeout_s = params.timeout_s or spec.timeout_s
        plan = Plan(argv=[], timeout_s=timeout_s, resources=default_resources(spec))
    return _slurm_plan(plan, ctx) if executor == "slurm" else _sent_plan(tool, plan, params, ctx)


def _plan(tool: Tool, spec: JobSpec, params: JobParams, ctx: Context) -> Plan:
    timeout_s = params.timeout_s or spec.timeout_s
    if tool.estimate is None:
        return Plan(argv=worker_argv(tool), timeout_s=timeout_s, resources=default_resources(spec))
    plan = tool.estimate(params, ctx)
    own = {"argv": plan.argv or worker_argv(tool), "resources": plan.resources or default_resources(spec)}
    return plan.model_copy(update=own)


def _slurm_plan(plan: Plan, ctx: Context) -> Plan:
    """The plan of a job for Slurm, with its script. Raises UsageError BEYOND_PARTITION, BAD_PLACEMENT and Unavailable
    NO_SLURM.
    """
    from aisp_mcp.jobs.executors import slurm
    from aisp_mcp.jobs.executors.placement import placement

    request = placement({**os.environ, **ctx.job_env}, plan.timeout_s, exclusive=bool(plan.resources))
    slurm.check_limits(request)
    text = slurm.script("JOB", str(ctx.settings.home / "runs" / "JOB"), sys.executable, request.as_dict())
    argv = ["sbatch", "--parsable", slurm.SCRIPT_NAME]
    return plan.model_copy(update={"argv": argv, "details": {**plan.details, "script": text}})


def _sent_plan(tool: Tool, plan: Plan, params: JobParams, ctx: Context) -> Plan:
    """The plan of a job for a machine or cluster that shares no files, in a dry run with the folders that it is sent.

    Raises UsageError BAD_PLACEMENT, NOT_SENT, Unavailable and Refused NOT_FOR_YOU.
    """
    from aisp_mcp.jobs.executors import parcels
    from aisp_mcp.jobs.executors.placement import engine, request

    environ = {**os.environ, **ctx.job_env}
    host = ClusterSettings.from_env(environ).executor
    if ctx.sees is not None and host != ClusterSettings.from_env().executor:
        hint = "Whoever runs the server chooses the machines that it reaches with its keys: AISP_EXECUTOR."
        raise Refused("NOT_FOR_YOU", f"A call cannot send a job from this server to {host}.", hint)
    given = params.model_dump(mode="json", exclude_unset=True)
    named = [name for name in DESTINATIONS if given.get(name)]
    if named:
        message = f"{named[0]} names a file here, and {host} would write it there."
        raise UsageError("BAD_PLACEMENT", message, "What a job writes comes back in its run folder; omit the argument.")
    details = {**plan.details, "host": host}
    argv = ["ssh", host]
    if engine(host) == "kubernetes":
        from aisp_mcp.jobs.executors import kubernetes

        wanted = request(host, environ, plan.timeout_s, exclusive=bool(plan.resources))
        details["manifest"] = kubernetes.manifest("aisp-JOB", tool.name, wanted, 1, "")
        argv = ["kubectl", "create", "--namespace", wanted["namespace"], "--filename", "-"]
    if params.dry_run:
        roots = {**os.environ, "AISP_BENCH_ROOT": os.pathsep.join(map(str, ctx.settings.bench_roots))}
        folders = [parcels.package(), *parcels.roots(parcels.whole(given, os.getcwd()), os.getcwd(), roots)]
        details["sent_once"] = [parcels.Parcel(folder).summary() for folder in folders]
    return plan.model_copy(update={"argv": argv, "details": details})


def worker_argv(tool: Tool) -> list[str]:
    """The command of a job, without its wrapper; it reads the arguments from standard input."""
    return python.module("aisp_mcp.server.worker", tool.name)


def default_resources(spec: JobSpec) -> list[str]:
    """The measuring locks of a job that names none."""
    if not spec.measures:
        return []
    from aisp_mcp.system.gpu import nvml

    return nvml.measuring_locks()
