"""Profiles that jobs made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.front.dashboard.asked import Asked
from aisp_mcp.front.rest.lists import PROFILING, profiling_jobs
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job

FILES = ("trace", "database", "snapshot")


@dataclass(frozen=True)
class Stored:
    """A job's answer, and the file that it names."""

    job: Job
    result: dict[str, Any]
    path: Path


def build(asked: Asked) -> dict[str, Any]:
    return {"jobs": [(job, subject(job)) for job in profiling_jobs(asked.ctx)]}


def subject(job: Job) -> str:
    """The program that was profiled, as its caller named it."""
    given = [job.params.get(name) for name in ("target", "script", "command", "report", "snapshot")]
    named = next((one for one in given if one), job.id)
    return " ".join(map(str, named)) if isinstance(named, list) else str(named)


def stored(ctx: Context, job_id: str) -> Stored:
    """A job's profile. Raises NotFound UNKNOWN_JOB, and NO_PROFILE for a job that made none or whose file is gone."""
    job = ctx.jobs.get(job_id, ctx.sees)
    result = (job.envelope or {}).get("result")
    result = result if isinstance(result, dict) else {}
    named = [result.get(name) for name in FILES] + [name for name in result.get("files", []) if "raw.csv" in name]
    path = next((Path(name) for name in named if isinstance(name, str)), None)
    if job.tool not in PROFILING or path is None or not path.is_file():
        raise NotFound("NO_PROFILE", f"{job_id[:80]} has no profile that is still there.", "The list has those.")
    return Stored(job, result, path)
