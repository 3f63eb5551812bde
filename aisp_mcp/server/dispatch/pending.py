"""Answers that take longer than a call: following a job to its end, and its row as a ticket or an answer."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from aisp_mcp.envelope import Envelope, Progress, Status, Ticket
from aisp_mcp.errors import AispError
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch.envelopes import Stopwatch, failure, internal, success
from aisp_mcp.server.registry import Tool, Wait
from aisp_mcp.store.records.job import Job, JobState

Show = Callable[[Progress], None]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 0.2


class Pending(Protocol):
    """poll and progress are cheap and never block. After deadline_s, the front answers with ticket()."""

    @property
    def deadline_s(self) -> float:
        """Seconds the caller is willing to wait, from the start of the call."""

    def poll(self) -> Envelope | None:
        """The full answer, or None while there is none."""

    def progress(self) -> Progress | None:
        """Progress, if any is known."""

    def seen(self) -> Sequence[Job]:
        """The jobs it waits for, as the last poll found them."""

    def ticket(self) -> Envelope:
        """The answer for a caller who stops waiting; the work continues."""


def pauses() -> Iterator[float]:
    """Seconds between polls: short at first so that quick work is answered quickly, then 0.2 s."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(LAST_PAUSE_S, pause * 1.4)


def in_queue(job: Job) -> Progress | None:
    """What a queued job waits for; None if no job is ahead of it."""
    if job.state is not JobState.QUEUED or not job.position:
        return None
    ahead = "one job is" if job.position == 1 else f"{job.position} jobs are"
    gpus = sum(name.startswith("gpu:") for name in job.resources)
    device = "the CPU" if "cpu" in job.resources else "the GPU" if gpus == 1 else f"{gpus} GPUs" if gpus else ""
    return Progress(done=0, message=f"queued{f' to measure on {device}' if device else ''}: {ahead} ahead")


@dataclass
class JobPending:
    """Waits for one job that was just submitted."""

    ctx: Context
    job_id: str
    deadline_s: float
    _seen: Job | None = field(default=None, init=False)

    def poll(self) -> Envelope | None:
        self._seen = job = self.ctx.jobs.get(self.job_id)
        return outcome(job, self.ctx) if job.state.terminal else None

    def progress(self) -> Progress | None:
        if self._seen is None:
            return None
        return bounded(self._seen.progress or in_queue(self._seen))

    def seen(self) -> Sequence[Job]:
        return [self._seen] if self._seen else []

    def ticket(self) -> Envelope:
        job = self.ctx.jobs.get(self.job_id)
        return outcome(job, self.ctx) if job.state.terminal else waiting(job, self.ctx)


@dataclass
class WaitPending:
    """Waits for jobs on behalf of a tool that returned Wait; the tool's own finish makes the result."""

    ctx: Context
    tool: Tool
    wait: Wait
    watch: Stopwatch
    _seen: list[Job] = field(default_factory=list, init=False)

    @property
    def deadline_s(self) -> float:
        return self.wait.timeout_s

    def poll(self) -> Envelope | None:
        self._seen = [self.ctx.jobs.get(job_id) for job_id in self.wait.job_ids]
        ended = [job.state.terminal for job in self._seen]
        enough = any(ended) if self.wait.until == "any" else all(ended)
        return self._finish() if enough else None

    def progress(self) -> Progress | None:
        if not self._seen:
            return None
        if len(self._seen) == 1:
            return bounded(self._seen[0].progress)
        ended = sum(job.state.terminal for job in self._seen)
        return Progress(done=ended, total=len(self._seen), message=f"{ended} of {len(self._seen)} jobs have ended")

    def seen(self) -> Sequence[Job]:
        return self._seen

    def ticket(self) -> Envelope:
        return self.poll() or self._finish()

    def _finish(self) -> Envelope:
        return success(self.tool.name, self.wait.finish(self._seen), self.watch)


@contextmanager
def supervisor(pending: Pending) -> Iterator[int | None]:
    """A descriptor that becomes readable when the supervisor of a running job ends; None if none is known to run.

    It ends right after its job, so the answer need not wait for the next poll.
    """
    pids = [job.pid for job in pending.seen() if job.pid and not job.state.terminal]
    handle = None
    with suppress(OSError):  # it has ended, or runs on another machine
        handle = os.pidfd_open(pids[0]) if pids else None
    try:
        yield None if handle is None or select.select([handle], [], [], 0)[0] else handle
    finally:
        if handle is not None:
            os.close(handle)


def guarded(tool_name: str, ctx: Context, look: Callable[[], Envelope | None]) -> Envelope | None:
    """Call poll or ticket; an exception becomes an answer."""
    watch = Stopwatch(ctx)
    try:
        return look()
    except AispError as error:
        return failure(tool_name, error, watch)
    except Exception as error:
        return internal(tool_name, error, watch)


def follow(
    tool_name: str,
    pending: Pending,
    ctx: Context,
    wait_s: float | None,
    show: Show = lambda _: None,
) -> Envelope:
    """Wait in this thread for the answer, at most wait_s seconds (None: without a limit), then return the ticket."""
    began = time.monotonic()
    for pause in pauses():
        answer = guarded(tool_name, ctx, pending.poll)
        if answer is None and wait_s is not None and time.monotonic() - began >= wait_s:
            answer = guarded(tool_name, ctx, pending.ticket)
        if answer is not None:
            return answer
        progress = pending.progress()
        if progress is not None:
            show(progress)
        with supervisor(pending) as handle:
            select.select([] if handle is None else [handle], [], [], pause)
    raise AssertionError("pauses() never ends")


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
