"""Which tests are benchmarks, and where a session keeps what belongs to it."""

from __future__ import annotations

from typing import Any

import pytest

FIXTURES = ("aisp_bench", "benchmark")
VERDICTS, WORKER = pytest.StashKey[list[Any]](), pytest.StashKey[Any]()


def is_benchmark(item: pytest.Item) -> bool:
    """True for a test that takes one of the fixtures."""
    return any(name in getattr(item, "fixturenames", ()) for name in FIXTURES)
