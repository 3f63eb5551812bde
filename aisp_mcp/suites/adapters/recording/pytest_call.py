"""The call that a test of pytest-benchmark measures, found by running the test up to it: with its fixtures, parameters,
package and conftest files, as pytest does. Runs only in child processes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aisp_mcp.errors import BenchmarkError

FIXTURES = ("benchmark", "aisp_bench")
SOURCES = ("", "src", "lib", "python")  # folders from which a project's modules are imported
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # a call may read its files until the process ends


class Reached(BaseException):
    """The test has reached the call that it measures; the rest of it has no effect."""


class Recorder:
    """The fixture: notes the call and ends the test."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.disabled, self.enabled, self.skipped = False, True, False
        self.extra_info: dict[str, Any] = {}
        self.group: str | None = None
        self.name = self.fullname = "benchmark"
        self.stats = self.options = SimpleNamespace()

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.call = function, args, kwargs
        raise Reached

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        **_: Any,
    ) -> Any:
        """The same with arguments from a setup function; numbers of rounds have no effect."""
        made = setup() if setup else None
        args, kwargs = made if made else (args, kwargs or {})
        return self(target, *args, **kwargs)


def direct(test: Callable[..., Any]) -> Call | None:
    """The call of a test that needs only the fixture; None for others. Raises BenchmarkError NO_BENCHMARK_CALL."""
    parameters = inspect.signature(test).parameters
    if len(parameters) != 1 or getattr(test, "pytestmark", None):
        return None
    fixture = Recorder()
    with contextlib.suppress(Reached):
        test(**dict.fromkeys(parameters, fixture))
    return _required(fixture, "")


def collected(root: Path, file: str, test: str) -> Call:
    """The call of a test in a project, at its first parameters. Raises BenchmarkError NO_BENCHMARK_CALL, NO_PYTEST."""
    try:
        import pytest
    except ImportError as error:
        raise BenchmarkError("NO_PYTEST", "The test needs pytest, which is not installed.") from error
    for folder in SOURCES:
        if str(root / folder) not in sys.path and (root / folder).is_dir():
            sys.path.insert(0, str(root / folder))
    plugin = _Plugin()
    words = [f"{root / file}::{test}", "-q", f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "no:randomly"]
    words += ["-W", "ignore", "-o", "addopts=", "-o", "required_plugins="]
    words += ["--tb=native", "-p", "no:unraisableexception"]  # most of the time of so short a session
    # In its default folder pytest first deletes what the user's other sessions left there, which can take minutes.
    _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="pytest-", ignore_cleanup_errors=True))
    words += [f"--basetemp={_TEMPORARY[-1].name}/base"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        pytest.main(words, plugins=[plugin])
    return _required(plugin.fixture, plugin.reason or output.getvalue().strip().rpartition("\n")[2])


def _required(fixture: Recorder, reason: str) -> Call:
    if fixture.call is None:
        because = f": {reason[:300]}" if reason else ""
        raise BenchmarkError("NO_BENCHMARK_CALL", f"The test does not call benchmark{because}.")
    return fixture.call


class _Plugin:
    """Replaces the fixture by the recorder, and ends the session after the first recorded call."""

    def __init__(self) -> None:
        self.fixture, self.reason = Recorder(), ""

    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """Replace the fixture, whether a plugin or a conftest file defines it."""
        if fixturedef.argname not in FIXTURES:
            return None
        fixturedef.cached_result = (self.fixture, fixturedef.cache_key(request), None)
        return self.fixture

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record why a test was skipped or failed before its call."""
        if self.fixture.call is None and not report.passed:
            longrepr = report.longrepr
            text = longrepr[2] if isinstance(longrepr, tuple) else str(getattr(longrepr, "reprcrash", longrepr))
            self.reason = text.strip().rpartition("\n")[2]

    def pytest_collectreport(self, report: Any) -> None:
        """Record why a file cannot be imported."""
        if not report.passed:
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.reason = text.strip().rpartition("\n")[2]

    def pytest_runtest_teardown(self, item: Any) -> None:
        """Skip further parameters."""
        if self.fixture.call is not None:
            item.session.shouldfail = "the call is known"
