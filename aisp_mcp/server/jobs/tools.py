"""Jobs: look, wait, cancel, list, clean. A job outlives the call, the client and the server that made it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from aisp_mcp.envelope import Progress
from aisp_mcp.errors import UsageError
from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import DESTROYS, MS, READS, Ask, S, Wait, tool
from aisp_mcp.store.records.job import Job, JobState

LOG_BYTES = 2000
CANCEL_WAIT_S = 10.0


class JobBrief(Record):
    """One job in a line. Times are UTC seconds since the epoch; reason says why it did not succeed."""

    job_id: str
    tool: str
    subject: str | None = Field(default=None, description="What it works on, such as its targets.")
    state: JobState
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    position: int | None = Field(default=None, description="Jobs ahead in the queue; set while queued.")
    progress: Progress | None = None
    reason: str | None = None


class JobStatus(Record):
    """One job. answer: the job's own status, result or error, once it has ended; log: the end of its output."""

    job: JobBrief
    exit_code: int | None = None
    log: str = Field(description=f"At most the last {LOG_BYTES} bytes of its output.")
    answer: dict[str, Any] | None = None


class JobsWaited(Record):
    """The requested jobs, in that order. answer: set if a single job was requested and it has ended."""

    jobs: list[JobBrief]
    answer: dict[str, Any] | None = None


class JobPage(Record):
    """Jobs, newest first. next_cursor: the cursor that gets the next page; null on the last one."""

    jobs: list[JobBrief]
    next_cursor: str | None = None


class JobsCleaned(Record):
    """Jobs removed, or to be removed. Active jobs are never touched. Sizes in megabytes (1e6 bytes) on the disk."""

    removed: bool = Field(description="False: nothing was removed yet; call again with confirm.")
    jobs: int
    freed_mb: float
    kept_jobs: int
    kept_mb: float
    oldest_kept_at: float | None = None


def brief(job: Job) -> JobBrief:
    """The line of a job; a reason of failure that its answer also contains is shortened to one sentence."""
    same = ("tool", "state", "created_at", "started_at", "ended_at", "position", "reason")
    progress = None if job.state.terminal else job.progress
    facts = {name: getattr(job, name) for name in same}
    return JobBrief(job_id=job.id, subject=job.subject or None, progress=progress, **facts)


def answer_of(job: Job) -> dict[str, Any] | None:
    """The job's envelope without the facts that its line already contains, and without the class of its error."""
    if job.envelope is None:
        return None
    answer = {name: part for name, part in job.envelope.items() if name != "tool"}
    if error := answer.get("error"):
        answer["error"] = {name: part for name, part in error.items() if name != "kind"}
    return answer


class JobStatusParams(Params):
    job_id: str


@tool(cli="job status", effect=READS, cost=MS, next=("aisp_job_wait", "aisp_job_cancel"), listed="default")
def aisp_job_status(p: JobStatusParams, ctx: Context) -> JobStatus:
    """Show a job's state, progress, last output and, once it has ended, its answer."""
    job = ctx.jobs.get(p.job_id, ctx.sees)
    log = ctx.jobs.log_tail(job.id, LOG_BYTES)
    answer = answer_of(job)
    line = brief(job) if answer is None else brief(job).model_copy(update={"reason": None})
    return JobStatus(job=line, exit_code=job.exit_code, log=log, answer=answer)


class JobWaitParams(Params):
    job_ids: list[str] = Field(min_length=1, max_length=50)
    timeout_s: float = Field(default=30, ge=0, le=45)
    until: Literal["any", "all"] = "all"


@tool(cli="job wait", effect=READS, cost=S, next=("aisp_job_status",), chart="job", listed="lite")
def aisp_job_wait(p: JobWaitParams, ctx: Context) -> JobsWaited | Wait:
    """Wait until any or all of these jobs have ended, at most timeout_s; the answer of a single job is included."""
    ids = tuple(dict.fromkeys(p.job_ids))
    for job_id in ids:
        ctx.jobs.get(job_id, ctx.sees)
    return Wait(ids, p.timeout_s, _waited, p.until)


def _waited(jobs: list[Job]) -> JobsWaited:
    answer = answer_of(jobs[0]) if len(jobs) == 1 else None
    lines = [brief(job) for job in jobs]
    return JobsWaited(jobs=lines if answer is None else [lines[0].model_copy(update={"reason": None})], answer=answer)


class JobCancelParams(Params):
    job_id: str


@tool(cli="job cancel", effect=DESTROYS, cost=S, next=("aisp_job_status",), listed="default")
def aisp_job_cancel(p: JobCancelParams, ctx: Context) -> JobBrief | Wait:
    """End a job and every process it started; its output so far remains."""
    ctx.jobs.get(p.job_id, ctx.sees)
    job = ctx.jobs.cancel(p.job_id)
    return Wait((job.id,), CANCEL_WAIT_S, lambda jobs: brief(jobs[0]))


class JobListParams(Params):
    state: JobState | None = None
    tool: str | None = None
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, description="Last page's next_cursor.")


@tool(cli="job list", effect=READS, cost=MS, next=("aisp_job_status",), listed="default")
def aisp_job_list(p: JobListParams, ctx: Context) -> JobPage:
    """List jobs, newest first, by state or tool."""
    if p.cursor is not None and not (p.cursor.isascii() and p.cursor.isdigit() and len(p.cursor) < 19):
        raise UsageError("BAD_CURSOR", "This cursor was not made by aisp_job_list.", "Leave it out to start over.")
    before = int(p.cursor) if p.cursor else None
    jobs, more = ctx.store.list_jobs(p.state, p.tool, p.limit, before, ctx.sees)
    return JobPage(jobs=[brief(job) for job in jobs], next_cursor=None if more is None else str(more))


class JobCleanParams(Params):
    keep_days: float | None = Field(default=None, ge=0, description="Default: AISP_KEEP_DAYS.")
    keep_mb: float | None = Field(default=None, ge=0, description="Default: AISP_KEEP_MB.")
    confirm: bool = Field(default=False, description="Without it, only list what would be removed.")


@tool(cli="job clean", effect=DESTROYS, cost=S, next=("aisp_job_list",))
def aisp_job_clean(p: JobCleanParams, ctx: Context) -> JobsCleaned | Ask:
    """Remove ended jobs that are old, or the oldest beyond a total size, with all their files."""
    days = ctx.settings.keep_days if p.keep_days is None else p.keep_days
    size = ctx.settings.keep_mb if p.keep_mb is None else p.keep_mb
    done = ctx.store.clean(days, size, dry_run=not p.confirm, principal=ctx.sees)
    cleaned = JobsCleaned(removed=p.confirm, **done.model_dump())
    if p.confirm or not done.jobs:
        return cleaned
    return Ask(f"Remove {done.jobs} ended jobs and {done.freed_mb:.1f} MB of their files for good?", cleaned)
