"""Waiting for a server's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], patience_s: float = 30.0) -> None:
    """Wait for a condition by polling; fail loudly when it never comes."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)
