"""Tests that are measured: how they are recognized, the session's state, and the call that a test measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

FIXTURES = ("aisp_bench", "benchmark")
VERDICTS, WORKER = pytest.StashKey[list[Any]](), pytest.StashKey[Any]()


def is_benchmark(item: pytest.Item) -> bool:
    """Return True for a test that uses one of the fixtures."""
    return any(name in getattr(item, "fixturenames", ()) for name in FIXTURES)


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class MeasuredCall:
    """The call of a test. setup: makes the arguments of each call, or is called before it; teardown: is called after
    it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    setup: Callable[[], Arguments | None] | None = None
    teardown: Callable[..., Any] | None = None

    def timed(self, calls: int) -> tuple[float, Any]:
        """Seconds of this many calls, without setup and teardown, and the last result."""
        result = None
        if self.setup is None and self.teardown is None:
            function, args, kwargs = self.function, self.args, self.kwargs
            begin = time.perf_counter()
            for _ in range(calls):
                result = function(*args, **kwargs)
            return time.perf_counter() - begin, result
        seconds = 0.0
        for _ in range(calls):
            arguments = self.setup() if self.setup else None
            args, kwargs = arguments if arguments else (self.args, dict(self.kwargs))
            begin = time.perf_counter()
            result = self.function(*args, **kwargs)
            seconds += time.perf_counter() - begin
            if self.teardown:
                self.teardown(*args, **kwargs)
        return seconds, result
