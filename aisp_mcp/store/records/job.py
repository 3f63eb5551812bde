"""A job: one command that outlives its caller."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aisp_mcp.envelope import Progress
from aisp_mcp.records import Record
from aisp_mcp.store.records.job_state import JobState, check_transition

__all__ = ["Job", "JobState", "check_transition"]


class Job(Record):
    """One row of the jobs table. Times are UTC seconds since the epoch; ids carry 128 random bits."""

    id: str
    tool: str
    params: dict[str, Any]
    state: JobState
    resources: tuple[str, ...] = ()
    timeout_s: float
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    position: int | None = Field(default=None, description="Jobs ahead in the queue; set while queued.")
    progress: Progress | None = None
    pid: int | None = Field(default=None, description="The supervisor's process id while running.")
    exit_code: int | None = None
    reason: str | None = Field(default=None, description="Why it failed, was cancelled or was lost.")
    principal: str = "local"
    envelope: dict[str, Any] | None = Field(default=None, description="The answer, written by the worker itself.")
    run_dir: str
    seq: int = 0
