"""Jobs in the calling process, for a debugger: no supervisor and no log, and no time-out unless the call names one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aisp_mcp.jobs import endings
from aisp_mcp.process import tree

if TYPE_CHECKING:
    from aisp_mcp.store.database import Store
    from aisp_mcp.store.records.job import Job

TURN_S = 0.05


class TimeUp(BaseException):
    """The job's time is over. Not an Exception, which what it interrupts might take for one of its own."""


class Inprocess:
    """Runs jobs in this process. work: runs one job and returns its answer as JSON. tell: is given a job while it waits
    for its turn. look_after: ends stalled jobs.
    """

    def __init__(
        self,
        store: Store,
        work: Callable[[Job], str],
        tell: Callable[[Job], object],
        look_after: Callable[[], object],
    ) -> None:
        self.store = store
        self.work = work
        self.tell = tell
        self.look_after = look_after

    def run(self, job: Job, slots: int) -> None:
        """Wait for the job's turn, run it here and record its end. Raises StoreError."""
        queue = self.store.queue
        owner = {"pid": os.getpid(), "pid_start": tree.start_time(os.getpid()), "namespace": tree.namespace()}
        queue.note_owner(job.id, owner)
        while queue.claim(job.id, slots, owner) is None:
            waiting = self.store.job(job.id)
            if waiting.state.terminal:
                return  # cancelled while it waited
            self.tell(waiting)
            self.look_after()  # or processes that were killed would keep their turns
            time.sleep(TURN_S)
        answer = self._answer(job)
        queue.end(job.id, endings.state_of(answer), reason=endings.sentence(answer), envelope=answer)

    def _answer(self, job: Job) -> str:
        """The answer of the job, or that its time is over. Only the main thread can be interrupted, and only a limit
        that the call names is kept: a debugger may stop a job for long.
        """
        if "timeout_s" not in job.params or threading.current_thread() is not threading.main_thread():
            return self.work(job)

        def end(*_: object) -> None:
            raise TimeUp

        began, before = time.time(), signal.signal(signal.SIGALRM, end)
        timer = signal.setitimer(signal.ITIMER_REAL, job.timeout_s)
        try:
            return self.work(job)
        except TimeUp:
            message = f"{job.tool} took longer than {job.timeout_s:g} s."
            return endings.failure(job.tool, job.id, "TIMEOUT", message, began)
        finally:
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *timer)
