"""Any call to any tool is answered: no crash, no hang, nothing internal, within the budget, with valid next steps.

Calls are made from each tool's own schema, half of them with something wrong. Nothing is measured: a tool that runs
something is called for its plan (`dry_run`), which takes the same way up to the start of the job.
"""

from __future__ import annotations

import itertools
import json
import re
import select
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from front_support import Raw
from fuzz_calls import calls, only_plan
from hypothesis import HealthCheck, given, settings
from waiting import PATIENCE_S

from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.registry import Effect
from aisp_mcp.settings import Settings

dispatch.load_catalog(replace(Settings.from_env({}), tool_modules=""))
TOOLS = [tool for tool in registry.tools() if tool.fn.__module__.startswith("aisp_mcp.")]
META = "io.modelcontextprotocol/"
USAGE = {"UNKNOWN_ARGUMENT", "MISSING_ARGUMENT", "INVALID_ARGUMENT", "UNKNOWN_TOOL", "TOOL_NOT_OFFERED"}
INTERNAL = re.compile(r"Traceback|pydantic|site-packages|errors\.|File \"/|0x[0-9a-f]{8}")
ANSWER_S = 45  # well under the patience of any client


class Fuzzed(Raw):
    """The server as a process that gets one request after the other."""

    def __init__(self, limit: int, cwd: Path) -> None:
        super().__init__("--toolsets", "all", cwd=cwd)
        self.limit = limit
        self.numbers = itertools.count(1)
        self.followed: set[str] = set()
        self.meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}

    def tool(self, name: str, arguments: Any) -> dict[str, Any]:
        """The answer as it came over the wire."""
        number = next(self.numbers)
        self.send(id=number, method="tools/call", params={"name": name, "arguments": arguments, "_meta": self.meta})
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        assert ready, f"{name} did not answer"
        line = self.process.stdout.readline()
        assert line, f"{name} ended the server: {json.dumps(arguments)[:500]}"
        answer: dict[str, Any] = json.loads(line)
        assert answer["id"] == number
        return answer

    def check(self, name: str, arguments: Any) -> None:
        """Call, and look at everything that was promised of the answer."""
        answer = self.tool(name, arguments)
        if "error" in answer:
            # Arguments that are not an object, and text that is not valid Unicode, do not make a call.
            assert answer["error"]["code"] in (-32602, -32700), answer
            return
        [block] = answer["result"]["content"]
        envelope = json.loads(block["text"])
        assert envelope == answer["result"]["structuredContent"]
        assert len(block["text"]) <= self.limit
        error = envelope.get("error", {})
        assert answer["result"].get("isError", False) is (envelope["status"] == "error")
        assert error.get("code") != "INTERNAL", error
        assert not INTERNAL.search(json.dumps(error)), error
        for step in next_steps(envelope):
            self._follow(step)

    def _follow(self, step: dict[str, Any]) -> None:
        """A suggested call is valid; one that only reads is made, and is not refused for how it was called."""
        tool = registry.get(step["tool"])
        dispatch.validate(tool, step["args"])
        key = json.dumps([step["tool"], step["args"]], sort_keys=True)
        if key in self.followed or tool.effect not in (Effect.READS, Effect.RUNS) or len(self.followed) > 300:
            return
        self.followed.add(key)
        answer = self.tool(tool.name, only_plan(tool, step["args"]))
        error = answer["result"]["structuredContent"].get("error", {})
        assert error.get("code") not in USAGE, (step, error)


def next_steps(value: Any) -> Iterator[dict[str, Any]]:
    """Every call an answer suggests, wherever it stands."""
    if isinstance(value, dict) and set(value) >= {"tool", "args"} and isinstance(value["args"], dict):
        # A suggestion whose required arguments the question did not state says which are missing.
        if not value.get("missing"):
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from next_steps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from next_steps(inner)


def fuzz(server: Fuzzed, count: int, derandomize: bool) -> None:
    """Hypothesis drives; the server must be alive and silent at the end."""

    @settings(
        max_examples=count,
        derandomize=derandomize,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(calls(TOOLS))
    def one(call: tuple[str, Any]) -> None:
        server.check(*call)

    try:
        one()
        assert server.process.poll() is None
    finally:
        _, output = server.process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in output, output[-3000:]


@pytest.fixture
def cwd(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for whatever a tool might be talked into writing; only the shipped tools are there."""
    monkeypatch.delenv("AISP_TOOL_MODULES")
    folder = tmp_path / "cwd"
    folder.mkdir()
    return folder


def test_some_calls_to_all_tools(cwd: Path) -> None:
    fuzz(Fuzzed(8_000, cwd), 100, derandomize=True)
    assert list(cwd.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("given_limit", "limit"), [(None, 8_000), ("10000000", 32_000)])
def test_ten_thousand_calls(cwd: Path, monkeypatch: pytest.MonkeyPatch, given_limit: str | None, limit: int) -> None:
    if given_limit:
        monkeypatch.setenv("AISP_MCP_PREVIEW_LIMIT", given_limit)
        monkeypatch.setenv("AISP_MCP_PREVIEW_ITEMS", "100000")
    fuzz(Fuzzed(limit, cwd), 10_000, derandomize=False)
    assert list(cwd.iterdir()) == []
