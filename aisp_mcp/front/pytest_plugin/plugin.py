"""Hooks of pytest: options, the fixtures, and the verdicts at the end. Every pytest imports it, so it stays light."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from aisp_mcp.front.pytest_plugin.measured import VERDICTS, WORKER, is_benchmark

if TYPE_CHECKING:
    from aisp_mcp.front.pytest_plugin.verdicts import BenchmarkRow


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of --aisp; if pytest-benchmark is not installed, accept its options as well."""
    group = parser.getgroup("aisp", "benchmarks judged by aisp")
    group.addoption(
        "--aisp", action="store_true", help="Measure and judge tests with the fixture aisp_bench or benchmark."
    )
    group.addoption("--aisp-base", metavar="REV", help="Git revision to judge against, measured interleaved.")
    group.addoption("--aisp-save", metavar="NAME", help="Store the times as a baseline of that name.")
    group.addoption("--aisp-baseline", metavar="NAME", help="Judge against a stored baseline.")
    group.addoption(
        "--aisp-preset", choices=("quick", "default", "release"), default="default", help="1, 5 or 10 replicates."
    )
    group.addoption("--aisp-margin", type=float, metavar="X", help="Smallest slowdown that fails, such as 0.05.")
    group.addoption(
        "--aisp-missing",
        choices=("fail", "warn"),
        default="fail",
        help="Effect of a benchmark that only the base measures.",
    )
    group.addoption("--aisp-strict", action="store_true", help="Fail if no benchmark could be judged.")
    group.addoption("--aisp-comment", metavar="FILE", help="Write the verdicts as a pull request comment.")
    if importlib.util.find_spec("pytest_benchmark") is None:
        from aisp_mcp.front.pytest_plugin import compatible

        compatible.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures and, in a measured process, the worker's hooks."""
    from aisp_mcp.front.pytest_plugin import fixture, worker

    marker = "aisp(make=None, n=64, check=None, rtol=None, atol=None): arguments and answers of the measured function."
    config.addinivalue_line("markers", marker)
    if config.pluginmanager.hasplugin("benchmark") and config.getoption("aisp"):
        # Since 5.0, pytest-benchmark ends the session if `benchmark` is not its own fixture.
        config.pluginmanager.unregister(name="benchmark")
    if config.pluginmanager.hasplugin("benchmark"):  # it has its own fixture and marker
        provided = fixture.OwnFixture
    else:
        config.addinivalue_line("markers", "benchmark: options of pytest-benchmark, of which --aisp needs none.")
        provided = fixture.BothFixtures
    config.pluginmanager.register(provided(), "aisp-fixtures")
    if (measured := worker.from_environment()) is not None:
        config.stash[WORKER] = measured
        config.pluginmanager.register(measured, "aisp-worker")
    elif config.getoption("aisp"):
        from aisp_mcp.front.pytest_plugin import session

        session.check(config)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Accept the hooks that conftest files define for pytest-benchmark."""
    if importlib.util.find_spec("pytest_benchmark") is None:
        from aisp_mcp.front.pytest_plugin import compatible

        pluginmanager.add_hookspecs(compatible)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Obey --benchmark-only and --benchmark-skip if pytest-benchmark is not installed."""
    if config.pluginmanager.hasplugin("benchmark"):
        return
    for item in items:
        uses = is_benchmark(item)
        if config.getoption("benchmark_only", False) and not uses:
            item.add_marker(pytest.mark.skip(reason="not a benchmark (--benchmark-only)"))
        if config.getoption("benchmark_skip", False) and uses:
            item.add_marker(pytest.mark.skip(reason="a benchmark (--benchmark-skip)"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """Measure the tests that passed, and fail the session if any became slower."""
    config = session.config
    if not config.getoption("aisp") or WORKER in config.stash or hasattr(config, "workerinput"):
        return
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or config.option.collectonly:
        return
    from aisp_mcp.front.pytest_plugin import session as measured

    config.stash[VERDICTS] = rows = measured.run(session)
    if path := config.getoption("aisp_comment"):
        from aisp_mcp.front.pytest_plugin import reports

        base = config.getoption("aisp_base") or config.getoption("aisp_baseline") or "no base"
        reports.write_comment(config.invocation_params.dir / path, rows, base)
    if any(row.fails for row in rows) or (config.getoption("aisp_strict") and _none_judged(rows)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _none_judged(rows: list[BenchmarkRow]) -> bool:
    from aisp_mcp.front.pytest_plugin import reports

    return bool(rows) and not reports.judged(rows)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a line per benchmark."""
    rows = config.stash.get(VERDICTS, None)
    if rows is not None:
        from aisp_mcp.front.pytest_plugin import reports

        reports.write_summary(terminalreporter, rows)
