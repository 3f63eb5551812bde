"""The clock of all measurements, shared by all trusted processes."""

from __future__ import annotations

import time


def clock() -> float:
    """Seconds on CLOCK_MONOTONIC_RAW: not slewed, not settable, and out of reach of other processes."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) / 1e9
