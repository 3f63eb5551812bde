"""Tests that are measured: how they are recognized, the session's state, and the call that a test measures."""

from __future__ import annotations

import copy
import random
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
class Own:
    """The arguments of a test's marker `aisp`: a generator of arguments, a checker of answers, and tolerances."""

    make: Callable[[int, int], Any] | None = None
    n: int = 64
    check: Callable[[Any, Any], Any] | None = None
    rtol: float | None = None
    atol: float | None = None

    @classmethod
    def of(cls, node: pytest.Item) -> Own:
        """The test's. Raises pytest.UsageError for a name that does not exist."""
        marker = node.get_closest_marker("aisp")
        try:
            return cls(**marker.kwargs) if marker else cls()
        except TypeError as error:
            raise pytest.UsageError(f"{node.nodeid}: {error}") from None

    @property
    def has_tolerance(self) -> bool:
        """Return True if floats of both commits' results are compared within a tolerance."""
        return self.rtol is not None or self.atol is not None

    def setup(self, name: str) -> Callable[[], Arguments]:
        """Return a maker of the arguments of each call: new ones, which the same call has at both commits."""
        draw = random.Random(name)

        def arguments() -> Arguments:
            assert self.make is not None
            made = self.make(draw.getrandbits(60), self.n)
            return (made if isinstance(made, tuple) else (made,)), {}

        return arguments

    def refuse(self, args: tuple[Any, ...], answer: Any) -> None:
        """Fail the test if its checker refuses the answer."""
        if self.check is not None and not self.check(args[0] if len(args) == 1 else args, answer):
            pytest.fail(f"{self.check.__name__} refuses the answer {str(answer)[:80]}", pytrace=False)


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

    def checked(self, own: Own) -> tuple[float, Any]:
        """The same of one call, whose answer the test's checker accepts."""
        if own.check is None:
            return self.timed(1)
        args, kwargs = (self.setup() if self.setup else None) or (self.args, dict(self.kwargs))
        before = copy.deepcopy(args)  # the function may change them
        seconds, answer = MeasuredCall(self.function, args, kwargs).timed(1)
        if self.teardown:
            self.teardown(*args, **kwargs)
        own.refuse(before, answer)
        return seconds, answer

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
