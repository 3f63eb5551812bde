"""Plan of a job: its command, its limits, and the resources it holds while it runs."""

from __future__ import annotations

import os
import sys

from aisp_mcp.errors import Unavailable
from aisp_mcp.process import python
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import JobParams, JobSpec, Plan, Tool


def make_plan(tool: Tool, spec: JobSpec, params: JobParams, ctx: Context) -> Plan:
    """The tool's own estimate, completed. Raises what the estimate raises, as the run itself would."""
    from aisp_mcp.jobs.executors.placement import chosen_executor

    if chosen_executor({**os.environ, **ctx.job_env}) == "slurm":
        return _cluster_plan(tool, spec, params, ctx)
    return _plan(tool, spec, params, ctx)


def _plan(tool: Tool, spec: JobSpec, params: JobParams, ctx: Context) -> Plan:
    timeout_s = params.timeout_s or spec.timeout_s
    if tool.estimate is None:
        return Plan(argv=worker_argv(tool), timeout_s=timeout_s, resources=default_resources(spec))
    plan = tool.estimate(params, ctx)
    own = {"argv": plan.argv or worker_argv(tool), "resources": plan.resources or default_resources(spec)}
    return plan.model_copy(update=own)


def _cluster_plan(tool: Tool, spec: JobSpec, params: JobParams, ctx: Context) -> Plan:
    """The plan of a job for Slurm, with its script. The node may have what this machine lacks.

    Raises UsageError BEYOND_PARTITION, BAD_PLACEMENT and Unavailable NO_SLURM.
    """
    from aisp_mcp.jobs.executors import slurm_limits, slurm_script
    from aisp_mcp.jobs.executors.placement import placement

    try:
        plan = _plan(tool, spec, params, ctx)
    except Unavailable:
        timeout_s = params.timeout_s or spec.timeout_s
        plan = Plan(argv=[], timeout_s=timeout_s, resources=default_resources(spec))
    request = placement({**os.environ, **ctx.job_env}, plan.timeout_s, exclusive=bool(plan.resources))
    slurm_limits.check_limits(request)
    text = slurm_script.script("JOB", str(ctx.settings.home / "runs" / "JOB"), sys.executable, request.as_dict())
    argv = ["sbatch", "--parsable", slurm_script.NAME]
    return plan.model_copy(update={"argv": argv, "details": {**plan.details, "script": text}})


def worker_argv(tool: Tool) -> list[str]:
    """The command of a job, without its wrapper; it reads the arguments from standard input."""
    return python.module("aisp_mcp.server.worker", tool.name)


def default_resources(spec: JobSpec) -> list[str]:
    """The measuring locks of a job that names none: every GPU of this machine, or the CPU if there is no GPU."""
    if not spec.measures:
        return []
    from aisp_mcp.system.gpu.nvml import gpu_uuids

    return [f"gpu:{uuid}" for uuid in gpu_uuids()] or ["cpu"]
