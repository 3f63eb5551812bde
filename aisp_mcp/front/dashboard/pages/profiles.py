"""Profiles that jobs recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.rest.lists import PROFILING, profiling_jobs
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job

FILES = ("trace", "database", "snapshot")


@dataclass(frozen=True)
class StoredProfile:
    """A profiling job, its result, and the file that it recorded."""

    job: Job
    result: dict[str, Any]
    path: Path


def build(request: PageRequest) -> dict[str, Any]:
    return {"jobs": [(job, subject(job)) for job in profiling_jobs(request.ctx)]}


def subject(job: Job) -> str:
    """The program that was profiled, as its caller named it."""
    names = [job.params.get(name) for name in ("target", "script", "command", "report", "snapshot")]
    subject = next((name for name in names if name), job.id)
    return " ".join(map(str, subject)) if isinstance(subject, list) else str(subject)


def stored(ctx: Context, job_id: str) -> StoredProfile:
    """Return a job's profile. Raises NotFound UNKNOWN_JOB, or NO_PROFILE if it has none or its file is gone."""
    job = ctx.jobs.get(job_id, ctx.sees)
    result = (job.envelope or {}).get("result")
    result = result if isinstance(result, dict) else {}
    paths = [result.get(name) for name in FILES] + [name for name in result.get("files", []) if "raw.csv" in name]
    path = next((Path(name) for name in paths if isinstance(name, str)), None)
    if job.tool not in PROFILING or path is None or not path.is_file():
        raise NotFound(
            "NO_PROFILE", f"{job_id[:80]} has no stored profile.", "The profiles page lists all stored profiles."
        )
    return StoredProfile(job, result, path)
