"""Where the threads of a worker may run, looked at while they run."""

from __future__ import annotations

import os
import random
import select
from collections.abc import Iterable
from contextlib import suppress

from aisp_mcp.judge.parent.processes import procfs

WATCH_S = 2e-4, 8e-4  # between two looks


def bind(tasks: Iterable[int], cpus: Iterable[int]) -> None:
    """Bind the threads to these cores. One that is gone is left out: its round will show it."""
    for task in tasks:
        with suppress(OSError):
            os.sched_setaffinity(task, cpus)


def answers_before_next_look(pipe: int) -> bool:
    """Wait until the pipe has data, or until a random moment at which it is time to look again."""
    return bool(select.select([pipe], [], [], random.uniform(*WATCH_S))[0])


def foreign_cores(pids: list[int], cpus: Iterable[int]) -> list[int]:
    """Other cores than these that a thread of the processes may run on.

    A thread can change its own set at any time, and go back before the round ends: so this is checked during rounds,
    too.
    """
    allowed = set[int]()
    for task in procfs.tasks(pids):
        with suppress(OSError):
            allowed |= os.sched_getaffinity(task)
    return sorted(allowed - set(cpus))
