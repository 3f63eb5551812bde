"""Options and hooks that suites written for pytest-benchmark expect from pytest. They have no effect on timing."""

from __future__ import annotations

from typing import Any

import pytest

_SWITCHES = (
    *("only", "skip", "disable", "enable", "disable-gc", "autosave", "save-data", "verbose", "quiet"),
    *("cprofile-loops", "warmup-iterations"),
)
_VALUES = (
    *("min-time", "max-time", "min-rounds", "timer", "calibration-precision", "save", "json", "sort", "group-by"),
    *("columns", "name", "histogram", "storage", "compare", "compare-fail", "cprofile", "warmup", "netrc", "time-unit"),
)


def add_options(parser: pytest.Parser) -> None:
    """Accept pytest-benchmark's options, so that its suites run unmodified."""
    group = parser.getgroup("benchmark", "accepted for suites of pytest-benchmark; without effect on --aisp")
    for name in _SWITCHES:
        group.addoption(f"--benchmark-{name}", action="store_true", default=False, help="see pytest-benchmark")
    for name in _VALUES:
        group.addoption(f"--benchmark-{name}", nargs="?", const="", default=None, help="see pytest-benchmark")


def pytest_benchmark_scale_unit(config: Any, unit: Any, benchmarks: Any, best: Any, worst: Any, sort: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_generate_machine_info(config: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_update_machine_info(config: Any, machine_info: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_generate_commit_info(config: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_update_commit_info(config: Any, commit_info: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_group_stats(config: Any, benchmarks: Any, group_by: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_generate_json(
    config: Any, benchmarks: Any, include_data: Any, machine_info: Any, commit_info: Any
) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_update_json(config: Any, benchmarks: Any, output_json: Any) -> None:
    """Hook of pytest-benchmark; never called."""


def pytest_benchmark_compare_machine_info(
    config: Any, benchmarksession: Any, machine_info: Any, compared_benchmark: Any
) -> None:
    """Hook of pytest-benchmark; never called."""
