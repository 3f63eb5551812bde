"""Suites as Slurm arrays: one job per few candidates, skipping those that an earlier call has finished."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import JobParams, Plan, Tool
from aisp_mcp.settings import ClusterSettings
from aisp_mcp.store.records.job import Job, JobState

# Arguments for the caller only, and those divided among the tasks.
_NOT_OF_TASKS = {"wait_s", "dry_run", "confirm", "targets"}


class ArrayTask(Record):
    """One job of a suite. passed: from its answer; None before it has one."""

    job_id: str
    targets: list[str]
    state: str
    passed: bool | None = None


class ArrayReport(Record):
    """State of a suite on a cluster. Repeating the call submits tasks that failed, were cancelled or have
    been edited.
    """

    submitted: int
    kept: int
    arrays: int
    tasks: list[ArrayTask]


def targets_per_task(ctx: Context) -> int:
    """Candidates that one task of an array measures; 0 without an array. Raises UsageError BAD_PLACEMENT."""
    cluster = ClusterSettings.from_env({**os.environ, **ctx.job_env})
    if cluster.array and cluster.executor != "slurm":
        raise UsageError("BAD_PLACEMENT", "An array is a job of Slurm.", "Add --executor slurm.")
    return max(cluster.array, 0)


def submit(tool: Tool, params: JobParams, plan: Plan, ctx: Context, size: int) -> ArrayReport:
    """Submit the missing tasks. Raises UsageError BAD_PLACEMENT, and as Jobs.submit_array does."""
    from aisp_mcp.jobs.executors.slurm import max_array_size

    digests: Mapping[str, str] = plan.details.get("digests", {})
    if not digests:
        raise UsageError("BAD_PLACEMENT", f"{tool.name} has no targets that an array could divide.", None)
    common = params.model_dump(mode="json", exclude_unset=True, exclude=_NOT_OF_TASKS)
    earlier = _earlier(tool, common, digests, ctx)
    done = {target for task in earlier for target in task.targets}
    missing = [target for target in digests if target not in done]
    chunks = [missing[begin : begin + size] for begin in range(0, len(missing), size)]
    most = max_array_size()
    groups = [chunks[begin : begin + most] for begin in range(0, len(chunks), most)]
    submitted: list[Job] = []
    for group in groups:
        tasks = [
            ({**common, "targets": chunk}, {"digests": {name: digests[name] for name in chunk}}) for chunk in group
        ]
        submitted += ctx.jobs.submit_array(
            tool.name,
            tasks,
            resources=plan.resources,
            timeout_s=plan.timeout_s,
            principal=ctx.principal,
            env=ctx.job_env,
        )
    new = [ArrayTask(job_id=job.id, targets=job.params["targets"], state=job.state.value) for job in submitted]
    return ArrayReport(submitted=len(new), kept=len(earlier), arrays=len(groups), tasks=[*earlier, *new])


def _earlier(tool: Tool, common: dict[str, Any], digests: Mapping[str, str], ctx: Context) -> list[ArrayTask]:
    """Jobs of earlier calls that wait, run or have an answer for the current files; the newest of each target."""
    tasks, seen = list[ArrayTask](), set[str]()
    for job, array in ctx.store.array_jobs(tool.name, ctx.principal):
        targets = job.params.get("targets", [])
        same = {name: value for name, value in job.params.items() if name != "targets"} == common
        as_now = all(digests.get(name) == digest for name, digest in array["digests"].items())
        counts = not job.state.terminal or job.state is JobState.SUCCEEDED
        if same and as_now and counts and not seen.intersection(targets):
            seen.update(targets)
            result = (job.envelope or {}).get("result") or {}
            tasks.append(ArrayTask(job_id=job.id, targets=targets, state=job.state.value, passed=result.get("passed")))
    return tasks[::-1]
