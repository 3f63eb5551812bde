"""Check during a round which cores the threads of a worker are allowed to use."""

from __future__ import annotations

import os
import random
import select
from collections.abc import Iterable
from contextlib import suppress

from aisp_mcp.judge.parent.processes import procfs

WATCH_S = 2e-4, 8e-4  # between two checks


def bind(tasks: Iterable[int], cpus: Iterable[int]) -> None:
    """Bind the threads to these cores. Threads that have exited are skipped; the round will detect that."""
    for task in tasks:
        with suppress(OSError):
            os.sched_setaffinity(task, cpus)


def answers_before_next_look(pipe: int) -> bool:
    """Wait until the pipe has data, or until a random moment for the next check."""
    return bool(select.select([pipe], [], [], random.uniform(*WATCH_S))[0])


def foreign_cores(pids: list[int], cpus: Iterable[int]) -> list[int]:
    """Cores other than these that a thread of the processes may run on.

    A thread can change its own set at any time, and go back before the round ends, so this is checked during rounds
    too.
    """
    allowed = set[int]()
    for task in procfs.tasks(pids):
        with suppress(OSError):
            allowed |= os.sched_getaffinity(task)
    return sorted(allowed - set(cpus))
