"""Costly and destructive work waits for confirmation: from the person if the client can ask, else by an argument."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from front_support import ERAS, Cli, over_pipes
from mcp import Client

from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.server.context import Context
from aisp_mcp.settings import Settings

BOTH = pytest.mark.parametrize("era", ERAS)
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("demo_tools")]
# Its estimate is 0.1 s: with this threshold it is costly.
COSTLY = {"AISP_CONFIRM_DEVICE_S": "0.05"}


class Person:
    """Answers every form in one way, and records the requests."""

    def __init__(self, action: str, confirm: bool = True) -> None:
        self._reply = types.ElicitResult(action=action, content={"confirm": confirm} if action == "accept" else None)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        return self._reply


@asynccontextmanager
async def client_of(era: str, person: Person | None, over: str = "memory") -> AsyncIterator[Client]:
    """A client whose person answers so, of a server for which the demonstration's job is costly."""
    env = {**os.environ, **COSTLY}
    memory = over == "memory"
    server: Any = build_server(Handlers(Context(settings=Settings.from_env(env)))) if memory else over_pipes(env=env)
    async with Client(server, mode=era, read_timeout_seconds=50, elicitation_callback=person) as client:
        yield client


def jobs() -> int:
    return len(Context(settings=Settings.from_env()).store.list_jobs()[0])


@BOTH
async def test_a_person_who_agrees_starts_it(home: Path, era: str) -> None:
    person = Person("accept")
    async with client_of(era, person, over="stdio") as client:
        result = await client.call_tool("aisp_demo_count", {"steps": 2})
    assert result.structured_content["result"] == {"steps": 2, "job": True}
    assert person.asked == ["aisp_demo_count is expected to take about 0.1 s. Run it?"]


@BOTH
@pytest.mark.parametrize("person", [Person("decline"), Person("cancel"), Person("accept", confirm=False)])
async def test_a_person_who_does_not_agree_is_heard(home: Path, era: str, person: Person) -> None:
    async with client_of(era, person) as client:
        result = await client.call_tool("aisp_demo_count", {"steps": 2})
    assert result.structured_content["error"]["code"] == "DECLINED"
    assert jobs() == 0


@BOTH
async def test_without_a_way_to_ask_the_next_step_is_the_confirmed_call(home: Path, era: str) -> None:
    async with client_of(era, None) as client:
        result = await client.call_tool("aisp_demo_count", {"steps": 2})
        data = result.structured_content
        assert result.is_error is True
        assert data["error"]["code"] == "CONFIRM_FIRST"
        assert data["confirm"].endswith("Run it?")
        assert jobs() == 0
        [step] = data["error"]["next_steps"]
        assert step == {"tool": "aisp_demo_count", "args": {"steps": 2, "confirm": True}}
        done = await client.call_tool(step["tool"], step["args"])
    assert done.structured_content["result"] == {"steps": 2, "job": True}


@BOTH
async def test_a_dry_run_and_a_cheap_call_are_not_asked_about(home: Path, era: str) -> None:
    person = Person("decline")
    async with client_of(era, person) as client:
        plan = await client.call_tool("aisp_demo_count", {"steps": 2, "dry_run": True})
        assert plan.structured_content["result"]["estimate_s"] == 0.1
        assert (await client.call_tool("aisp_demo_echo", {"count": 1})).is_error is False
    assert person.asked == []


@BOTH
async def test_the_detour_asks_too(home: Path, era: str) -> None:
    person = Person("accept")
    async with client_of(era, person) as client:
        result = await client.call_tool("aisp_call_tool", {"tool": "aisp_demo_count", "args": {"steps": 1}})
    assert result.structured_content["result"] == {"steps": 1, "job": True}
    assert len(person.asked) == 1


@BOTH
async def test_cleaning_asks_before_anything_is_deleted(home: Path, era: str) -> None:
    async with client_of(era, None) as client:
        await client.call_tool("aisp_demo_count", {"steps": 1, "confirm": True})
        look = await client.call_tool("aisp_job_clean", {"keep_days": 0})
        assert look.structured_content["result"]["removed"] is False
        assert look.structured_content["confirm"].startswith("Remove 1 ended jobs")
    assert jobs() == 1
    async with client_of(era, Person("decline")) as client:
        assert (await client.call_tool("aisp_job_clean", {"keep_days": 0})).is_error is True
    assert jobs() == 1
    async with client_of(era, Person("accept")) as client:
        done = await client.call_tool("aisp_job_clean", {"keep_days": 0})
        assert done.structured_content["result"]["removed"] is True
        nothing = await client.call_tool("aisp_job_clean", {"keep_days": 0})
        assert "confirm" not in nothing.structured_content
    assert jobs() == 0


def test_who_types_a_command_has_decided(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISP_CONFIRM_DEVICE_S", "0.05")
    done = cli("demo", "count", "--steps", "1", "--json")
    assert json.loads(done.stdout)["result"] == {"steps": 1, "job": True}
