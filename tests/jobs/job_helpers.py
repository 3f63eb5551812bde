"""Waiting for jobs, and processes to be killed in tests."""

from __future__ import annotations

from waiting import PATIENCE_S, until

from aisp_mcp.jobs import starting
from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.process import tree
from aisp_mcp.store.records.job import Job


def finished(jobs: Jobs, job_id: str, patience_s: float = PATIENCE_S) -> Job:
    """The job once it has ended."""
    until(lambda: jobs.get(job_id).state.terminal, patience_s)
    return jobs.get(job_id)


def submit(jobs: Jobs, tool: str = "aisp_test_work", timeout_s: float = 60, **params: object) -> str:
    """The id of a new job."""
    return jobs.submit(tool, params, timeout_s=timeout_s).id


def answer(job: Job) -> dict[str, object]:
    """The result of a job that has one."""
    assert job.envelope is not None, job.reason
    return dict(job.envelope["result"])


def end_watcher(jobs: Jobs, executor: str) -> None:
    """Kill the watcher, which stays a while for the next job."""
    watcher = starting.living_watcher(jobs.store.home, executor)
    if watcher is not None:
        tree.kill([watcher])
        until(lambda: tree.start_time(watcher) is None)
