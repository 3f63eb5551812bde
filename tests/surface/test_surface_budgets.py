"""Cost of the catalogue for a model in every conversation, and the rules of a portable tool definition."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from front_support import over_pipes
from mcp import Client

pytestmark = pytest.mark.anyio

# Tokens of the o200k vocabulary, as a model sees a tool: name, description and input schema. The default list is what
# every conversation pays; all tools are listed to who asks for them, and their sum grows with the catalogue.
PER_TOOL, ALL_TOOLS, DEFAULT_TOOLS, WHOLE_LIST = 145, 16_100, 3_000, 24_000
# Without the vocabulary at hand: these definitions have 4.1 to 4.2 characters a token, so this bound is the stricter.
CHARACTERS_A_TOKEN = 4.0
MAX_DESCRIPTION, MAX_NAME = 240, 64


LISTED: dict[tuple[str, ...], dict[str, Any]] = {}


async def listed(*options: str) -> dict[str, Any]:
    """The result of tools/list, of the real server with these options; asked once."""
    if options not in LISTED:
        LISTED[options] = await _listed(*options)
    return LISTED[options]


async def _listed(*options: str) -> dict[str, Any]:
    server = over_pipes(*options, env={"AISP_TOOL_MODULES": ""})
    async with Client(server, read_timeout_seconds=50) as client:
        return (await client.list_tools()).model_dump(by_alias=True, mode="json", exclude_none=True)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def model_view(result: dict[str, Any]) -> list[str]:
    """Each tool as a model sees it."""
    seen = ("name", "description", "inputSchema")
    return [compact({key: tool[key] for key in seen}) for tool in result["tools"]]


async def test_the_catalogue_stays_within_its_budget_of_characters(home: Path) -> None:
    everything, default = await listed("--toolsets", "all"), await listed()
    tools = model_view(everything)
    assert sum(map(len, tools)) <= CHARACTERS_A_TOKEN * min(ALL_TOOLS, PER_TOOL * len(tools))
    assert sum(map(len, model_view(default))) <= CHARACTERS_A_TOKEN * DEFAULT_TOOLS
    assert len(compact(everything)) <= CHARACTERS_A_TOKEN * WHOLE_LIST


async def test_every_tool_is_portable(home: Path) -> None:
    tools = (await listed("--toolsets", "all"))["tools"]
    assert len({tool["name"] for tool in tools}) == len(tools) > 40
    for tool in tools:
        name, schema, hints = tool["name"], tool["inputSchema"], tool["annotations"]
        assert re.fullmatch(r"aisp_[a-z0-9_]+", name)
        assert len(name) <= MAX_NAME
        assert tool["title"], name
        assert 20 <= len(tool["description"]) <= MAX_DESCRIPTION, name
        assert set(hints) == {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}, name
        assert not (hints["readOnlyHint"] and hints["destructiveHint"]), name
        assert (schema["type"], schema["additionalProperties"]) == ("object", False), name
        properties = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(properties), name
        for argument, part in properties.items():
            assert re.fullmatch(r"[a-z][a-z0-9_]*", argument), (name, argument)
            assert "type" in part or "anyOf" in part, (name, argument)
        assert tool["outputSchema"]["type"] == "object"
        for word in ('"title":', '"$ref"', '"null"', "$defs", '"const"'):
            assert word not in compact(schema), (name, word)


async def test_a_description_says_something_of_its_own(home: Path) -> None:
    descriptions = [tool["description"] for tool in (await listed("--toolsets", "all"))["tools"]]
    assert len(set(descriptions)) == len(descriptions)
    assert not [text for text in descriptions if "\n" in text or text != text.strip()]
