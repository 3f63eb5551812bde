"""Jobs in the calling process, for a debugger: no supervisor, no time-out and no log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aisp_mcp.jobs import endings
from aisp_mcp.process import tree

if TYPE_CHECKING:
    from aisp_mcp.store.database import Store
    from aisp_mcp.store.records.job import Job

TURN_S = 0.05


class Inprocess:
    """Runs jobs in this process. work: runs one job and returns its answer as JSON. look_after: ends stalled jobs."""

    def __init__(self, store: Store, work: Callable[[Job], str], look_after: Callable[[], object]) -> None:
        self.store = store
        self.work = work
        self.look_after = look_after

    def run(self, job: Job, slots: int) -> None:
        """Wait for the job's turn, run it here and record its end. Raises StoreError."""
        queue = self.store.queue
        owner = {"pid": os.getpid(), "pid_start": tree.start_time(os.getpid()), "namespace": tree.namespace()}
        queue.note_owner(job.id, owner)
        while queue.claim(job.id, slots, owner) is None:
            if self.store.job(job.id).state.terminal:
                return  # cancelled while it waited
            self.look_after()  # or processes that were killed would keep their turns
            time.sleep(TURN_S)
        answer = self.work(job)
        queue.end(job.id, endings.state_of(answer), reason=endings.sentence(answer), envelope=answer)
