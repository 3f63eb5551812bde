"""Jobs as tasks: one row, seen by a client that follows tasks and by every other way."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_support import Cli, Raw

TASKS = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol/"


class Modern(Raw):
    """The server in the era without a handshake; every request says what the client can."""

    def __init__(self, tasks: bool = True, forms: bool = False, env: dict[str, str] | None = None) -> None:
        super().__init__(env=env)
        self._numbers = itertools.count(1)
        capabilities: dict[str, Any] = {"extensions": {TASKS: {}}} if tasks else {}
        if forms:
            capabilities["elicitation"] = {"form": {}}
        self._meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": capabilities}

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One request; its result, or its error."""
        number = next(self._numbers)
        self.send(id=number, method=method, params={**params, "_meta": self._meta})
        answer = self.read()
        assert answer["id"] == number
        return answer.get("result") or answer["error"]

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=name, arguments=arguments)

    def until(self, task: str, *statuses: str) -> dict[str, Any]:
        """The task once it has one of these statuses. The server itself paces the asking."""
        for _ in range(60):
            seen = self.ask("tasks/get", taskId=task)
            if seen["status"] in statuses:
                return seen
            self.tool("aisp_demo_wait", job_ids=[task], timeout_s=0.5)
        raise AssertionError(seen)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def modern(shared_env: dict[str, str]) -> Iterator[Modern]:
    """One server for all tests that neither end it nor need one that was started in another way."""
    server = Modern(forms=True, env=shared_env)
    yield server
    server.close()


def test_the_server_says_that_it_serves_tasks(modern: Modern) -> None:
    assert TASKS in modern.ask("server/discover")["capabilities"]["extensions"]


def test_a_task_is_a_job_by_the_same_id(modern: Modern, cli: Cli, shared_env: dict[str, str]) -> None:
    made = modern.tool("aisp_demo_count", steps=2)
    assert made["resultType"] == "task"
    assert made["status"] == "working"
    assert "task" not in made
    seen = modern.until(made["taskId"], "completed")
    envelope = seen["result"]["structuredContent"]
    assert envelope["result"] == {"steps": 2, "job": True}
    assert envelope["job"]["job_id"] == made["taskId"]
    assert json.loads(seen["result"]["content"][0]["text"]) == envelope
    assert seen["ttlMs"] == 30 * 86_400_000
    status = modern.tool("aisp_job_status", job_id=made["taskId"])["structuredContent"]["result"]
    assert status["job"]["state"] == "succeeded"
    assert status["answer"]["result"] == envelope["result"]
    line = json.loads(cli("job", "status", made["taskId"], "--json", env={**os.environ, **shared_env}).stdout)
    assert line["result"]["answer"]["result"] == envelope["result"]


def test_an_error_of_the_tool_is_a_completed_task(modern: Modern) -> None:
    seen = modern.until(modern.tool("aisp_demo_count", fail=True)["taskId"], "completed")
    assert seen["result"]["isError"] is True
    assert seen["result"]["structuredContent"]["error"]["code"] == "NOT_TODAY"


def test_cancelling_is_acknowledged_and_then_seen(modern: Modern, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    task = modern.tool("aisp_demo_count", gate=str(tmp_path / "gate"))["taskId"]
    acknowledged = modern.ask("tasks/cancel", taskId=task)
    assert set(acknowledged) == {"resultType", "_meta"}
    seen = modern.until(task, "cancelled", "completed", "failed")
    assert seen["status"] == "cancelled"
    assert modern.ask("tasks/cancel", taskId=task)["resultType"] == "complete"


def test_a_client_that_does_not_follow_tasks_gets_the_answer_itself(home: Path) -> None:
    plain = Modern(tasks=False)
    try:
        answer = plain.tool("aisp_demo_count", steps=1)
        assert answer["structuredContent"]["result"] == {"steps": 1, "job": True}
        refused = plain.ask("tasks/get", taskId=answer["structuredContent"]["job"]["job_id"])
        assert refused["code"] == -32021
        assert refused["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
    finally:
        plain.close()


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_an_unknown_task_is_said_in_our_words(modern: Modern, method: str) -> None:
    refused = modern.ask(method, taskId="j_" + "x" * 22, inputResponses={})
    assert refused["code"] == -32602
    assert refused["data"]["code"] == "UNKNOWN_JOB"


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
def test_what_the_extension_does_not_have_is_not_there(modern: Modern, method: str) -> None:
    assert modern.ask(method, taskId="x")["code"] == -32601


def test_what_is_no_job_is_answered_at_once(modern: Modern) -> None:
    assert modern.tool("aisp_demo_echo", count=1)["resultType"] == "complete"
    assert modern.tool("aisp_demo_count", steps=1, dry_run=True)["resultType"] == "complete"
    assert modern.tool("aisp_demo_count", steps=13)["isError"] is True


def test_a_job_asks_and_goes_on_with_the_reply(modern: Modern) -> None:
    task = modern.tool("aisp_demo_ask", names=["colour", "size"])["taskId"]
    requests = modern.until(task, "input_required")["inputRequests"]
    assert set(requests) == {"colour", "size"}
    assert requests["size"]["params"]["requestedSchema"]["properties"] == {"value": {"type": "string"}}
    wrong = modern.ask("tasks/update", taskId=task, inputResponses={"colour": "red"})
    assert wrong["code"] == -32602
    replies = {"colour": {"action": "accept", "content": {"value": "red"}}, "nobody": {"action": "accept"}}
    assert modern.ask("tasks/update", taskId=task, inputResponses=replies)["resultType"] == "complete"
    assert set(modern.ask("tasks/get", taskId=task)["inputRequests"]) == {"size"}
    modern.ask("tasks/update", taskId=task, inputResponses={"size": {"action": "decline"}})
    result = modern.until(task, "completed")["result"]["structuredContent"]["result"]
    assert result["said"] == {"colour": "red", "size": None}


def test_a_job_that_nobody_can_answer_for_is_told_so(home: Path) -> None:
    for server in (Modern(tasks=False, forms=True), Modern(tasks=True, forms=False)):
        try:
            answer = server.tool("aisp_demo_ask", names=["colour"])
            if answer["resultType"] == "task":
                answer = server.until(answer["taskId"], "completed")["result"]
            assert answer["structuredContent"]["result"] == {"said": {}}
        finally:
            server.close()


def test_a_costly_task_is_confirmed_before_there_is_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_CONFIRM_DEVICE_S", "0.05")
    server = Modern(forms=True)
    try:
        first = server.tool("aisp_demo_count", steps=1)
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        yes = {"confirm": {"action": "accept", "content": {"confirm": True}}}
        second = server.ask("tools/call", name="aisp_demo_count", arguments={"steps": 1}, inputResponses=yes)
        assert second["resultType"] == "task"
        assert server.until(second["taskId"], "completed")["result"]["isError"] is False
    finally:
        server.close()


def test_a_task_outlives_its_server(home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    first = Modern()
    task = first.tool("aisp_demo_count", steps=1, gate=str(tmp_path / "gate"))["taskId"]
    first.close()
    second = Modern()
    try:
        assert second.ask("tasks/get", taskId=task)["status"] == "working"
        os.write(gate, b"x")
        assert second.until(task, "completed")["result"]["structuredContent"]["result"]["steps"] == 1
    finally:
        second.close()
        os.close(gate)
