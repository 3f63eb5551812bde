"""The clock of all measurements, shared by all trusted processes, and what delays the one that reads it."""

from __future__ import annotations

import os
import time
from contextlib import suppress


def clock() -> float:
    """Seconds on CLOCK_MONOTONIC_RAW: not slewed, not settable, and out of reach of other processes."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) / 1e9


def own_delay() -> float:
    """Seconds so far that this thread was ready to run while its core ran another one; 0 if the kernel does not report
    it.
    """
    with suppress(OSError, ValueError):
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        try:
            return int(os.read(file, 100).split()[1]) / 1e9
        finally:
            os.close(file)
    return 0.0
