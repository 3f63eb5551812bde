"""Wait in the verifier for a worker's answer on a GPU."""

from __future__ import annotations

import os
import select

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.shared_memory import ENDED, ControlBlock


def await_answer(control: ControlBlock, pipe: str = "", ended: int = 0, deadline_s: float = 0.0) -> None:
    """Return when the worker's device has ended more than `ended` rounds, when the pipe holds data, or when no process
    is left that could write to it. It polls without sleeping: waking up takes long enough for a worker that answers
    early to finish its work.
    """
    if not pipe:
        return
    end, poll, fd = clock() + deadline_s, select.poll(), _opened(pipe)
    try:
        poll.register(fd, select.POLLIN)
        while control.stats[ENDED] == ended and not poll.poll(0) and clock() < end:
            pass
    finally:
        os.close(fd)


def _opened(pipe: str) -> int:
    """Open the pipe by its path in /proc. Raises BenchmarkError if this process may not see its parent's."""
    try:
        return os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        message = f"The verifier cannot open a worker's pipe through /proc: {error.strerror}."
        hint = "A GPU is measured where a process may read /proc of another one of the same user."
        raise BenchmarkError("VERIFIER_BLIND", message, hint) from error
