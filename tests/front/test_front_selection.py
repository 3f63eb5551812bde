"""Tools that a server offers: chosen when it starts, the same on every connection."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import forks
import pytest
from front_support import ERAS, Connect, over_pipes
from mcp import Client
from mcp.shared.exceptions import MCPError

from aisp_mcp.errors import UsageError
from aisp_mcp.front.mcp.instructions import instructions
from aisp_mcp.server import registry
from aisp_mcp.server.dispatch import select
from aisp_mcp.settings import ToolSettings

LITE = {"aisp_triage", "aisp_suggest_tools", "aisp_call_tool", "aisp_job_wait"}


def names(**options: Any) -> list[str]:
    return list(select(ToolSettings(**options)).listed)


def test_by_default_few_are_listed_and_all_are_reached(demo_tools: None) -> None:
    chosen = select(ToolSettings())
    listed = set(chosen.listed)
    assert listed > LITE
    assert "aisp_gpu_topology_matrix" not in listed
    assert "aisp_demo_echo" in listed  # a user's own tools are listed
    assert chosen.allowed == {tool.name for tool in registry.tools()}


def test_lite_is_four_tools(demo_tools: None) -> None:
    assert set(names(lite=True)) == LITE


def test_what_is_named_is_what_there_is(demo_tools: None) -> None:
    assert names(tools="aisp_triage,aisp_demo_repeat") == ["aisp_demo_echo", "aisp_triage"]
    assert select(ToolSettings(tools="aisp_triage")).allowed == {"aisp_triage"}
    assert all(registry.get(name).family == "ask" for name in names(toolsets="ask"))
    both = names(toolsets="ask", tools="aisp_triage")
    assert set(both) == {*names(toolsets="ask"), "aisp_triage"}


def test_jobs_come_with_the_tools_that_take_their_tickets(demo_tools: None) -> None:
    assert {"aisp_job_wait", "aisp_job_status", "aisp_run_benchmarks"} <= set(names(toolsets="runs"))
    assert "aisp_job_wait" not in names(toolsets="ask")


def test_the_order_does_not_depend_on_how_it_was_asked_for(demo_tools: None) -> None:
    everything = [tool.name for tool in registry.tools()]
    assert names(toolsets="all") == everything
    assert names(toolsets="runs,gate,all,default") == everything


def test_read_only_leaves_nothing_that_runs_or_writes(demo_tools: None) -> None:
    chosen = select(ToolSettings(toolsets="all", read_only=True))
    effects = {registry.get(name).effect.value for name in chosen.allowed}
    assert effects == {"reads", "any"}
    assert "aisp_run_benchmarks" not in chosen.allowed


def test_an_excluded_tool_cannot_be_called_by_a_detour(demo_tools: None) -> None:
    assert "aisp_triage" not in select(ToolSettings(exclude_tools="aisp_triage")).allowed


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        ({"toolsets": "suits"}, "UNKNOWN_TOOLSET", "suites"),
        ({"toolsets": "qqq"}, "UNKNOWN_TOOLSET", "workloads."),
        ({"tools": "qqq"}, "UNKNOWN_TOOL", ", …"),
        ({"tools": "aisp_triag"}, "UNKNOWN_TOOL", "aisp_triage"),
        ({"exclude_tools": "aisp_triag"}, "UNKNOWN_TOOL", "aisp_triage"),
        ({"tools": "aisp_triage", "exclude_tools": "aisp_triage"}, "NO_TOOLS", "Leave one"),
    ],
)
def test_a_wrong_name_is_said_with_a_right_one(demo_tools: None, options: dict[str, str], code: str, word: str) -> None:
    with pytest.raises(UsageError, match=r"No |These") as caught:
        select(ToolSettings(**options))
    assert caught.value.code == code
    assert word in (caught.value.hint or "")


def test_flags_and_environment_choose_and_the_flag_comes_first(home: Path) -> None:
    assert _listed([], AISP_TOOLS="aisp_triage,aisp_status") == ["aisp_status", "aisp_triage"]
    assert _listed(["--tools", "aisp_triage"], AISP_TOOLS="aisp_status") == ["aisp_triage"]
    assert set(_listed(["--lite"])) == LITE


def _listed(options: list[str], **environment: str) -> list[str]:
    import anyio

    async def ask() -> list[str]:
        env = {"AISP_TOOL_MODULES": "", **environment}
        async with Client(over_pipes(*options, env=env), read_timeout_seconds=50) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    return anyio.run(ask)


def test_a_server_that_would_offer_nothing_does_not_start(home: Path) -> None:
    argv = [sys.executable, "-m", "aisp_mcp", "--toolsets", "nothing_like_it"]
    done = forks.run(argv, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "UNKNOWN_TOOLSET" in done.stderr


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_one_tool_calls_the_others(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        result = await client.call_tool("aisp_call_tool", {"tool": "aisp_demo_echo", "args": {"count": 3}})
        assert result.structured_content["tool"] == "aisp_demo_echo"
        assert result.structured_content["result"]["said"]["count"] == 3
        job = await client.call_tool("aisp_call_tool", {"tool": "aisp_demo_count", "args": {"steps": 2}})
        assert job.structured_content["result"] == {"steps": 2, "job": True}
        wrong = await client.call_tool("aisp_call_tool", {"tool": "aisp_demo_eco"})
        assert wrong.structured_content["error"]["code"] == "UNKNOWN_TOOL"
        bad = await client.call_tool("aisp_call_tool", {"tool": "aisp_demo_echo", "args": {"cuont": 1}})
        assert bad.structured_content["error"]["code"] == "UNKNOWN_ARGUMENT"
        deep = {"tool": "aisp_demo_echo", "args": {"count": 1}}
        for _ in range(50):
            deep = {"tool": "aisp_call_tool", "args": deep}
        assert (await client.call_tool("aisp_call_tool", deep)).is_error is False


@pytest.mark.anyio
async def test_what_is_not_offered_is_refused_on_every_way(
    home: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AISP_EXCLUDE_TOOLS", "aisp_demo_echo")
    async with connect() as client:
        with pytest.raises(MCPError, match="does not offer") as caught:
            await client.call_tool("aisp_demo_echo", {"count": 1})
        assert caught.value.code == -32602
        detour = await client.call_tool("aisp_call_tool", {"tool": "aisp_demo_echo", "args": {"count": 1}})
        assert detour.structured_content["error"]["code"] == "TOOL_NOT_OFFERED"
        refused = await client.call_tool("aisp_demo_refuse", {})
        steps = [step["tool"] for step in refused.structured_content["error"]["next_steps"]]
        assert steps == ["aisp_demo_numbers"]
        answer = await client.call_tool(
            "aisp_suggest_tools", {"query": "say the arguments as they arrived", "limit": 20}
        )
        suggested = [suggestion["tool"] for suggestion in answer.structured_content["result"]["suggestions"]]
        assert "aisp_demo_echo" not in suggested


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"lite": True}, {"read_only": True, "lite": True}])
def test_instructions_name_only_tools_that_can_be_called(options: dict[str, bool], demo_tools: None) -> None:
    chosen = select(ToolSettings(**options))
    text = instructions(chosen)
    assert set(re.findall(r"aisp_\w+", text)) <= chosen.allowed
    assert len(text) < 1700
    assert ("read-only" in text) == options.get("read_only", False)
    assert ("aisp_run_benchmarks" in text) != options.get("read_only", False)


def test_a_server_with_the_default_list_loads_a_tool_when_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "own_tools.py").write_text(
        "from aisp_mcp.records import Params, Record\n"
        "from aisp_mcp.server.context import Context\n"
        "from aisp_mcp.server.registry import MS, READS, tool\n"
        "@tool(cli='own words', effect=READS, cost=MS)\n"
        "def aisp_own_words(p: Params, ctx: Context) -> Record:\n"
        "    'Say words of my own, and nothing else.'\n"
        "    return Record()\n"
    )
    program = (
        "from aisp_mcp.server import registry\n"
        "from aisp_mcp.server.dispatch import load_listed, select\n"
        "from aisp_mcp.settings import Settings, ToolSettings\n"
        "load_listed(Settings.from_env({'AISP_TOOL_MODULES': 'own_tools'}))\n"
        "before = select(ToolSettings()), select(ToolSettings(lite=True))\n"
        "assert [tool.name for tool in registry.loaded()] == ['aisp_own_words']\n"
        "assert registry.get('aisp_calculate').name == 'aisp_calculate'\n"
        "registry.tools()\n"
        "assert (select(ToolSettings()), select(ToolSettings(lite=True))) == before\n"
        "assert before[0].chosen is None and 'aisp_own_words' in before[0].listed\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
