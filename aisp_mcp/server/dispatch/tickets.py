"""A job's row as an answer: a ticket while it runs, its envelope once it has ended."""

from __future__ import annotations

from typing import Any

from aisp_mcp.envelope import Envelope, Progress, Status, Ticket
from aisp_mcp.errors import AispError
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure
from aisp_mcp.store.records.job import Job, JobState

MAX_SAID = 200


def ticket(job: Job, now: float) -> Ticket:
    """The data a caller needs to poll a job. poll_after_s grows with the age of the job, from 1 s to 15 s."""
    age = max(0.0, now - job.created_at)
    pause = 0.0 if job.state.terminal else round(min(15.0, max(1.0, age / 4)), 1)
    return Ticket(
        job_id=job.id,
        state=job.state.value,
        poll_after_s=pause,
        position=job.position if job.state is JobState.QUEUED else None,
        progress=None if job.state.terminal else bounded(job.progress),
    )


def bounded(progress: Progress | None) -> Progress | None:
    """Progress with a message that fits on a line."""
    if progress is None or progress.message is None or len(progress.message) <= MAX_SAID:
        return progress
    return progress.model_copy(update={"message": progress.message[:MAX_SAID] + "…"})


def outcome(job: Job, ctx: Context) -> Envelope:
    """The full answer of an ended job: the one its worker wrote, or the reason why there is none."""
    watch = Stopwatch(ctx)
    job_ticket = ticket(job, ctx.clock())
    if job.envelope is not None:
        return Envelope.model_validate(job.envelope).model_copy(update={"job": job_ticket})
    return failure(job.tool, _ending(job), watch, job_ticket)


def waiting(job: Job, ctx: Context) -> Envelope:
    """The answer of a job that has not ended: its ticket."""
    status = Status.QUEUED if job.state is JobState.QUEUED else Status.RUNNING
    return Envelope(tool=job.tool, status=status, job=ticket(job, ctx.clock()), meta=Stopwatch(ctx).meta())


def _ending(job: Job) -> AispError:
    reason = f": {job.reason[:300]}" if job.reason else ""
    steps: list[tuple[str, dict[str, Any]]] = [("aisp_job_status", {"job_id": job.id})]
    if job.state is JobState.CANCELLED:
        return AispError("CANCELLED", f"The job was cancelled{reason}.", "Call the tool again to start over.", steps)
    if job.state is JobState.LOST:
        hint = "Its log shows how far it got; call the tool again."
        return AispError("JOB_LOST", f"The job vanished without an answer{reason}.", hint, steps)
    return AispError("JOB_FAILED", f"The job ended without an answer{reason}.", "Its log says why.", steps)
