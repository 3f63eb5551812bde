"""Clock of all measurements, the same in all trusted processes."""

from __future__ import annotations

import time


def clock() -> float:
    """Seconds on CLOCK_MONOTONIC_RAW: not slewed, not settable, and no other process can change it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) / 1e9
