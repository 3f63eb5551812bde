"""The server as a client meets it, in both protocol eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
from front_support import ERAS, Connect
from mcp.shared.exceptions import MCPError

from aisp_mcp.front.mcp.instructions import instructions
from aisp_mcp.server.dispatch import select
from aisp_mcp.settings import ToolSettings

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("era", ERAS)
PLACES = pytest.mark.parametrize("over", ["memory", "stdio"])


@BOTH
@PLACES
async def test_both_eras_serve_the_same_catalogue(connect: Connect, era: str, over: str) -> None:
    async with connect(era, over) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[era]
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == list(select(ToolSettings()).listed)
        result = await client.call_tool("aisp_demo_echo", {"count": 2})
        assert result.is_error is False
        assert result.structured_content["result"]["said"]["count"] == 2


@BOTH
async def test_every_tool_has_title_hints_and_closed_arguments(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        for tool in (await client.list_tools()).tools:
            assert tool.title
            assert tool.description
            hints = tool.annotations
            assert hints is not None
            four = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
            assert None not in four
            assert tool.input_schema["additionalProperties"] is False


async def test_effects_become_hints(connect: Connect) -> None:
    async with connect() as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    reads, refuses, counts = (hints[f"aisp_demo_{name}"] for name in ("echo", "refuse", "count"))
    assert (reads.read_only_hint, reads.idempotent_hint, reads.open_world_hint) == (True, True, False)
    assert (refuses.read_only_hint, refuses.destructive_hint, refuses.open_world_hint) == (False, True, True)
    assert (counts.read_only_hint, counts.destructive_hint) == (False, False)


async def test_a_schema_spends_no_word_twice(connect: Connect) -> None:
    async with connect() as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    assert schemas["aisp_demo_numbers"] == {"type": "object", "additionalProperties": False}
    echo = schemas["aisp_demo_echo"]["properties"]
    assert echo["count"] == {"type": "integer", "maximum": 9, "description": "How many."}
    assert echo["ratio"] == {"type": "number"}
    assert echo["colour"] == {"type": "string", "enum": ["red", "blue"], "default": "red"}
    assert "description" not in schemas["aisp_demo_count"]["properties"]["wait_s"]
    text = json.dumps(schemas)
    assert '"title"' not in text
    assert '"null"' not in text
    assert "$ref" not in text


async def test_the_catalogue_may_be_cached_by_anyone(connect: Connect) -> None:
    async with connect() as client:
        listed = await client.list_tools()
        assert (listed.ttl_ms, listed.cache_scope) == (3_600_000, "public")
        assert client.instructions == instructions(select(ToolSettings()))


def test_the_instructions_carry_the_workflow_in_few_words() -> None:
    text = instructions(select(ToolSettings()))
    assert len(text) < 1500
    for word in ("aisp_triage", "aisp_run_benchmarks", "aisp_job_wait", "wait_s", "timeout_s", "dry_run", "next_steps"):
        assert word in text


@BOTH
@PLACES
async def test_an_unknown_tool_is_a_protocol_error_with_a_hint(connect: Connect, era: str, over: str) -> None:
    async with connect(era, over) as client:
        with pytest.raises(MCPError, match="Did you mean 'aisp_demo_echo'") as caught:
            await client.call_tool("aisp_demo_eco", {})
    assert caught.value.code == -32602
    assert caught.value.data == {"code": "UNKNOWN_TOOL", "hint": "Did you mean 'aisp_demo_echo'?"}


@BOTH
async def test_an_unknown_cursor_is_a_protocol_error(connect: Connect, era: str) -> None:
    async with connect(era) as client:
        with pytest.raises(MCPError) as caught:
            await client.list_tools(cursor="x")
    assert caught.value.code == -32602


CALLS: list[tuple[str, dict[str, Any], bool]] = [
    ("aisp_demo_echo", {"count": 1}, False),
    ("aisp_demo_echo", {"count": "1"}, True),
    ("aisp_demo_echo", {"cuont": 1}, True),
    ("aisp_demo_numbers", {}, False),
    ("aisp_demo_big", {"items": 3000}, False),
    ("aisp_demo_boom", {}, True),
    ("aisp_demo_refuse", {}, True),
]


@BOTH
@pytest.mark.parametrize(("tool", "arguments", "is_error"), CALLS)
async def test_text_and_structured_content_are_the_same(
    connect: Connect, era: str, tool: str, arguments: dict[str, Any], is_error: bool
) -> None:
    async with connect(era) as client:
        result = await client.call_tool(tool, arguments)
    [block] = result.content
    assert block.type == "text"
    assert json.loads(block.text) == result.structured_content
    assert result.is_error is is_error
    assert (result.structured_content["status"] == "error") is is_error
    assert len(block.text) <= 8000


@PLACES
async def test_a_tool_that_prints_does_not_harm_the_protocol(connect: Connect, over: str) -> None:
    async with connect(over=over) as client:
        for _ in range(2):
            result = await client.call_tool("aisp_demo_print", {})
            assert result.structured_content["result"] == {"said": {"printed": True}}
