"""The fixture, with the calls of pytest-benchmark's: `benchmark(func, *args)`, `.pedantic(...)`, `extra_info`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from aisp_mcp.front.pytest_plugin.measured import Arguments, MeasuredCall, Own

if TYPE_CHECKING:
    from aisp_mcp.front.pytest_plugin.worker import PytestWorker


class Stats:
    """Times of the calls in this process, for tests that inspect them; verdicts come from elsewhere. Seconds."""

    def __init__(self, seconds: float) -> None:
        self.min = self.max = self.mean = self.median = self.total = seconds
        self.stddev = self.iqr = 0.0
        self.rounds = self.iterations = 1
        self.ops = 1 / seconds if seconds else 0.0
        self.data = [seconds]

    @property
    def stats(self) -> Stats:
        """The object itself, because pytest-benchmark nests its statistics."""
        return self

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class BenchmarkFixture:
    """One test's fixture. In a measured process, its call serves rounds to the timing process."""

    def __init__(self, node: pytest.Item, worker: PytestWorker | None) -> None:
        self._worker = worker
        self._used = False
        self._own = Own.of(node)
        self.name, self.fullname = node.name, node.nodeid
        marker = node.get_closest_marker("benchmark")
        self.group: str | None = marker.kwargs.get("group") if marker else None
        self.extra_info: dict[str, Any] = {}
        self.param: Any = None
        self.params: dict[str, Any] = dict(getattr(getattr(node, "callspec", None), "params", {}))
        self.stats: Stats | None = None
        self.enabled, self.disabled = True, False
        self.has_error = False

    def __call__(self, function_to_benchmark: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function once, and again as often as it is measured; return its result."""
        if self._own.make is not None:
            if args or kwargs:
                raise pytest.UsageError(f"{self.fullname}: the arguments are those that make() returns.")
            return self._run(MeasuredCall(function_to_benchmark, setup=self._own.setup(self.fullname)))
        return self._run(MeasuredCall(function_to_benchmark, args, kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Arguments | None] | None = None,
        teardown: Callable[..., Any] | None = None,
        **_: Any,
    ) -> Any:
        """The same with an untimed setup and teardown. Numbers of rounds and iterations have no effect."""
        return self._run(MeasuredCall(target, tuple(args), dict(kwargs or {}), setup, teardown))

    def weave(self, *_: Any, **__: Any) -> None:
        """Refuse aspects, which cannot be repeated. Skips the test."""
        pytest.skip("benchmark.weave is not supported with --aisp")

    patch = weave

    def _run(self, measured: MeasuredCall) -> Any:
        if self._used:
            raise RuntimeError("The fixture was used already: a test can measure one call.")
        self._used = True
        seconds, result = measured.checked(self._own)
        self.stats = Stats(seconds)
        if self._worker is not None:
            self._worker.serve(self.fullname, measured, self._own, seconds, result)
        return result


def _benchmark(request: pytest.FixtureRequest) -> BenchmarkFixture:
    from aisp_mcp.front.pytest_plugin.measured import WORKER

    return BenchmarkFixture(request.node, request.config.stash.get(WORKER, None))


class OwnFixture:
    """The fixture under its own name."""

    @pytest.fixture
    def aisp_bench(self, request: pytest.FixtureRequest) -> BenchmarkFixture:
        """Call a function with `aisp_bench(func, *args)`; `pytest --aisp` measures and judges it."""
        return _benchmark(request)


class BothFixtures(OwnFixture):
    """Also provides the fixture under pytest-benchmark's name."""

    @pytest.fixture
    def benchmark(self, aisp_bench: BenchmarkFixture) -> BenchmarkFixture:
        """pytest-benchmark's fixture: the same object as aisp_bench."""
        return aisp_bench

    @pytest.fixture
    def benchmark_weave(self, aisp_bench: BenchmarkFixture) -> Callable[..., None]:
        """pytest-benchmark's fixture for aspects, which skips."""
        return functools.partial(aisp_bench.weave)
