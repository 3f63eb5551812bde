"""pytest-benchmark: test functions with the fixture `benchmark`, which call `benchmark(function, *args, **kwargs)`.

The call that a test measures is found by running the test up to it: directly if it needs only the fixture, otherwise
with its fixtures, parameters, package and conftest files, as pytest does.
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

from aisp_mcp.judge.candidate import adapted
from aisp_mcp.judge.candidate.adapted import Constants
from aisp_mcp.judge.protocol.module_loader import unusable

PROBLEM = "problem.py"
FIXTURES = ("benchmark", "aisp_bench")
SOURCES = ("", "src", "lib", "python")  # folders from which a project's modules are imported
AS_IT_STANDS = (
    "Measure it unchanged, with the pytest plugin: pytest FILE --aisp --aisp-base HEAD (docs/pytest.md). To have its "
    "inputs made secret, pass tensors or arrays as arguments of the measured function."
)
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # a call may read its files until the process ends


class Reference(adapted.Reference):
    """The function that the test measures."""

    otherwise = AS_IT_STANDS

    def __init__(
        self, folder: Path, test: str, constants: Constants | None = None, file: str = PROBLEM, arguments: Any = None
    ) -> None:
        super().__init__(folder, arguments)
        self.file, self.name, self.constants = file, test, constants
        self.test: Callable[..., Any] | None = None
        if "/" not in file and "::" not in test:
            module = adapted.load(folder / file, f"benchmarked_{Path(file).stem}", constants, some=file != PROBLEM)
            self.test = getattr(module, test)
        self.function: Callable[..., Any] | None = None

    def call(self) -> Call:
        """Function and arguments that the test measures. Raises BenchmarkError."""
        call = direct(self.test) if self.test else None
        return call or collected(self.folder, self.file, self.name)

    def draw(self) -> Any:
        """Arguments of one call, by position and by name."""
        self.function, args, kwargs = self.call()
        return {"args": list(args), "kwargs": kwargs}

    def named(self, arguments: Any, tensors: dict[str, Any]) -> Any:
        """Name tensors after the function's parameters, if they have names."""
        try:
            known = list(inspect.signature(self.function).parameters) if self.function else []
        except (TypeError, ValueError):  # a builtin
            known = []
        names = [name for name in known if name not in arguments["kwargs"]]
        names += [f"input_{at}" for at in range(len(names), len(arguments["args"]))]
        args = [adapted.dissect(each, name, tensors) for name, each in zip(names, arguments["args"], strict=False)]
        kwargs = {name: adapted.dissect(each, name, tensors) for name, each in arguments["kwargs"].items()}
        return {"args": args, "kwargs": kwargs}

    def run(self, **tensors: Any) -> Any:
        """Call the function; arrays come back as tensors."""
        if self.function is None:
            self.function = self.call()[0]
        given = adapted.build(self.arguments, tensors)
        return as_tensor(self.function(*given["args"], **given["kwargs"]))


class Candidate(Reference):
    """The function that another test measures, on the baseline's arguments."""

    def __init__(self, folder: Path, file: str, test: str, arguments: Any, constants: Constants | None = None) -> None:
        super().__init__(folder, test, constants, file, arguments)

    def prepare(self, params: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        """Find the function before it is timed."""
        self.function = self.call()[0]
        return params


def as_tensor(output: Any) -> Any:
    """numpy results as tensors over the same memory."""
    import torch

    if isinstance(output, tuple | list):
        return type(output)(as_tensor(each) for each in output)
    return torch.as_tensor(output) if type(output).__module__ == "numpy" else output


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
        raise unusable("NO_PYTEST", "The test needs pytest, which is not installed.") from error
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
        raise unusable("NO_BENCHMARK_CALL", f"The test does not call benchmark{because}.")
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
