"""Waiting for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 45.0  # less than a test's time limit, so that what never came is named
T = TypeVar("T")


def until(condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Wait for a condition by polling, and return its value; fail when it never comes."""
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.005)
    return value
