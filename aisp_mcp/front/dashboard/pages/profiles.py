"""Profiles that jobs recorded: each a separate job, or a pass over one program of a benchmark run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.front.dashboard.request import PageRequest
from aisp_mcp.front.dashboard.words import count
from aisp_mcp.front.rest.lists import PROFILING, profiling_jobs
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job, JobState

FILES = ("trace", "database", "snapshot")
RUNS, EXAMINED = "aisp_run_benchmarks", 100


@dataclass(frozen=True)
class StoredProfile:
    """A profile. reference: its name in addresses: a job, or a job and the number of its pass, as in j_1.0.

    tool: that records such profiles. result: the answer of the recording job.
    """

    reference: str
    tool: str
    name: str
    created_at: float
    result: dict[str, Any]
    path: Path
    job: Job


def build(request: PageRequest) -> dict[str, Any]:
    rows = [(job.id, subject(job), job.tool, job.created_at) for job in profiling_jobs(request.ctx)]
    for job in _runs(request.ctx):
        for number, entry in enumerate(_passes(job)):
            tool = f"aisp_profile_{entry.get('profiler')}"
            if entry.get("files") and tool in PROFILING:
                rows.append((f"{job.id}.{number}", f"{entry['target']}, {entry['side']}", tool, job.created_at))
    rows.sort(key=lambda row: row[3], reverse=True)
    subjects = len({name for _, name, _, _ in rows})
    lead = f"{count(len(rows), 'profile')} of {count(subjects, 'program')}; each opens with where its time went."
    return {"rows": rows, "lead": lead if rows else ""}


def subject(job: Job) -> str:
    """The program that was profiled, as its caller named it."""
    names = [job.params.get(name) for name in ("target", "script", "command", "profile", "snapshot")]
    subject = next((name for name in names if name), job.id)
    return " ".join(map(str, subject)) if isinstance(subject, list) else str(subject)


def stored(ctx: Context, reference: str) -> StoredProfile:
    """Return a profile. Raises NotFound UNKNOWN_JOB, or NO_PROFILE if it has none or its file is gone."""
    job_id, _, number = reference.partition(".")
    job = ctx.jobs.get(job_id, ctx.sees)
    profile = _of_pass(job, int(number)) if number.isdecimal() and len(number) < 6 else _of_job(job)
    if profile is None or not profile.path.is_file():
        message = f"{reference[:80]} has no stored profile."
        raise NotFound("NO_PROFILE", message, "The profiles page lists all stored profiles.")
    return profile


def of_runs(ctx: Context, before: str, after: str) -> dict[str, tuple[str, str]]:
    """Candidate to its profiles' references in two runs, if both were recorded with the same profiler."""
    earlier, later = (_of_run(ctx, run_id) for run_id in (before, after))
    both = ((target, profiler) for target, profiler in later if (target, profiler) in earlier)
    return {target: (earlier[target, profiler], later[target, profiler]) for target, profiler in both}


def _of_run(ctx: Context, run_id: str) -> dict[tuple[str, str], str]:
    """(target, profiler) to reference: traces of a run's candidates."""
    references = {}
    for job in _runs(ctx):
        if _result(job).get("run_id") == run_id:
            for number, entry in enumerate(_passes(job)):
                if (
                    entry.get("files")
                    and entry.get("side") == "candidate"
                    and entry.get("profiler") in ("nsys", "torch")
                ):
                    references[str(entry["target"]), str(entry["profiler"])] = f"{job.id}.{number}"
    return references


def _of_job(job: Job) -> StoredProfile | None:
    result = _result(job)
    paths = [result.get(name) for name in FILES] + [name for name in result.get("files", []) if "raw.csv" in name]
    path = next((Path(name) for name in paths if isinstance(name, str)), None)
    if job.tool not in PROFILING or path is None:
        return None
    return StoredProfile(job.id, job.tool, subject(job), job.created_at, result, path, job)


def _of_pass(job: Job, number: int) -> StoredProfile | None:
    passes, folder = _passes(job), (_result(job).get("profiles") or {}).get("folder")
    if number >= len(passes) or not passes[number].get("files") or not isinstance(folder, str):
        return None
    entry = passes[number]
    name = next((name for name in entry["files"] if "raw.csv" in name), entry["files"][-1])
    tool, title = f"aisp_profile_{entry['profiler']}", f"{entry['target']}, {entry['side']}"
    return StoredProfile(f"{job.id}.{number}", tool, title, job.created_at, {}, Path(folder) / name, job)


def _runs(ctx: Context) -> list[Job]:
    """Runs that recorded profiles, with their answers, newest first."""
    jobs, _ = ctx.store.list_jobs(JobState.SUCCEEDED, RUNS, EXAMINED, None, ctx.sees)
    ids = [job.id for job in jobs if job.params.get("profile") not in (None, "none")]
    return ctx.store.jobs(ids) if ids else []


def _result(job: Job) -> dict[str, Any]:
    result = (job.envelope or {}).get("result")
    return result if isinstance(result, dict) else {}


def _passes(job: Job) -> list[dict[str, Any]]:
    passes = (_result(job).get("profiles") or {}).get("passes")
    return passes if isinstance(passes, list) else []
