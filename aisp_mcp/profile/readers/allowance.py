"""Limits on the processor time and memory that reading one profile may take.

The cyclic garbage collector is held while millions of small objects without cycles are built: each of its full passes
visits all of them again, which takes a third of the reading time of a trace with 200,000 events.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aisp_mcp.profile.readers.files import too_large

CPU_S = 180.0
MEMORY_BYTES = 3 * 2**30


class Allowance:
    """Limits, counted from creation in the reading thread. On a loaded machine, reading takes longer but
    uses no more.
    """

    def __init__(self) -> None:
        import psutil  # here: `aisp --help` loads this module

        self._process = psutil.Process()
        self._cpu = time.thread_time()
        self._memory = self._process.memory_info().rss

    def exceeded(self) -> str | None:
        """The exceeded limit, in words."""
        if time.thread_time() - self._cpu > CPU_S:
            return f"Reading the profile took more than {CPU_S:g} s of processor time"
        if self._process.memory_info().rss - self._memory > MEMORY_BYTES:
            return f"Reading the profile took more than {MEMORY_BYTES / 2**30:.3g} GiB of memory"
        return None

    def check(self) -> None:
        """Raise AispError TOO_LARGE if a limit was exceeded."""
        if words := self.exceeded():
            raise too_large(words)


_LOCK = threading.Lock()
_readers = 0
_was_on = False


@contextmanager
def collector_held() -> Iterator[None]:
    """Disable it for the process, until the last of the threads that hold it is done."""
    global _readers, _was_on
    with _LOCK:
        if _readers == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _readers += 1
    try:
        yield
    finally:
        with _LOCK:
            _readers -= 1
            if _readers == 0 and _was_on:
                gc.enable()
