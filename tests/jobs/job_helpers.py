"""Waiting for jobs, and processes to be killed in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

from aisp_mcp.jobs.manager import Jobs
from aisp_mcp.store.records.job import Job


def until(condition: Callable[[], object], patience_s: float = 30.0) -> None:
    """Wait for a condition by polling; fail loudly when it never comes."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.005)


def finished(jobs: Jobs, job_id: str, patience_s: float = 40.0) -> Job:
    """The job once it has ended."""
    until(lambda: jobs.get(job_id).state.terminal, patience_s)
    return jobs.get(job_id)
