"""Detection of benchmark tests, and the session's stored state."""

from __future__ import annotations

from typing import Any

import pytest

FIXTURES = ("aisp_bench", "benchmark")
VERDICTS, WORKER = pytest.StashKey[list[Any]](), pytest.StashKey[Any]()


def is_benchmark(item: pytest.Item) -> bool:
    """Return True for a test that uses one of the fixtures."""
    return any(name in getattr(item, "fixturenames", ()) for name in FIXTURES)
