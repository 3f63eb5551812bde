"""The part of the plugin in a measured process: it announces each benchmark and runs rounds on request."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import sys
from collections.abc import Sequence
from typing import IO, Any

import pytest

from aisp_mcp.front.pytest_plugin.measured import MeasuredCall, Own
from aisp_mcp.gate.workloads.processes import VARIABLE

MAX_ANSWER = 10_000_000  # bytes
DECIDING = ("aisp_margin", "aisp_missing", "aisp_strict")  # options that decide what fails


def from_environment() -> PytestWorker | None:
    """The worker of this process, if its parent measures it."""
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    commands, messages = (int(part) for part in text.split(","))
    for descriptor in (commands, messages):
        os.set_inheritable(descriptor, False)
    return PytestWorker(os.fdopen(commands, "r", encoding="utf-8"), os.fdopen(messages, "w", encoding="utf-8"))


class PytestWorker:
    """One end of the pipes. Messages are lines of JSON."""

    def __init__(self, commands: IO[str], messages: IO[str]) -> None:
        self._commands, self._messages = commands, messages

    def _tell(self, **message: Any) -> None:
        self._messages.write(json.dumps(message) + "\n")
        self._messages.flush()

    def _ask(self, **message: Any) -> dict[str, Any]:
        self._tell(**message)
        line = self._commands.readline()
        return json.loads(line) if line else {"end": True}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the benchmarks that the parent selects, in its order."""
        from aisp_mcp.front.pytest_plugin.measured import is_benchmark

        benchmarks = {item.nodeid: item for item in items if is_benchmark(item)}
        settings = {name: config.getoption(name) for name in DECIDING}
        selected: Sequence[str] = self._ask(collected=list(benchmarks), settings=settings).get("select", [])
        chosen = [benchmarks[name] for name in selected if name in benchmarks]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def serve(self, name: str, measured: MeasuredCall, own: Own, seconds: float, result: Any) -> None:
        """Run rounds of calls until the parent has enough of them."""
        facts = _written(result, own) if own.has_tolerance else {}
        own_clock = measured.setup is not None
        command = self._ask(ready=name, seconds=seconds, digest=_digest(result), own_clock=own_clock, **facts)
        while "calls" in command:
            elapsed, _ = measured.timed(command["calls"])
            command = self._ask(elapsed=elapsed)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report why a benchmark ended before it was ready."""
        if report.outcome != "passed":
            self._tell(problem=report.nodeid, outcome=report.outcome, message=_last_line(report))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Report that a test has ended."""
        self._tell(finished=nodeid)

    def pytest_sessionfinish(self) -> None:
        """Report the files of the modules that this process has loaded: they must belong to its own tree."""
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._tell(files=sorted(file for file in files if isinstance(file, str)))


def _written(result: Any, own: Own) -> dict[str, Any]:
    """A result for a comparison within a tolerance; nothing if it is too large or cannot be written down."""
    from aisp_mcp.judge import answers

    data = answers.written(result)
    if data is None or len(data) > MAX_ANSWER:
        return {}
    return {"answer": base64.b64encode(data).decode(), "rtol": own.rtol, "atol": own.atol}


def _digest(result: Any) -> str | None:
    """A digest of a result for comparison between processes; None if there is none."""
    try:
        return hashlib.sha256(pickle.dumps(result, protocol=4)).hexdigest()
    except Exception:  # objects of a library may raise anything when pickled
        return None


def _last_line(report: pytest.TestReport) -> str:
    lines = [line for line in report.longreprtext.splitlines() if line.strip()]
    return lines[-1][:300] if lines else report.outcome
