"""The catalogue in tokens, counted with the o200k vocabulary, which js-tiktoken carries with it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance_support import HERE, MODULES, VOCABULARY, needs_node, node
from mcp import Client, StdioServerParameters

from aisp_mcp.front.mcp.instructions import instructions
from aisp_mcp.server.dispatch import select
from aisp_mcp.settings import ToolSettings

pytestmark = [pytest.mark.conformance, needs_node(VOCABULARY), pytest.mark.anyio]

# Tokens, as a model sees a tool: name, description and input schema; and of the whole answer to tools/list.
PER_TOOL, ALL_TOOLS, DEFAULT_TOOLS, LITE_TOOLS, WHOLE_LIST = 120, 9_500, 3_000, 400, 15_000


async def listed(*options: str) -> dict[str, Any]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "aisp_mcp", *options], env={**os.environ, "AISP_TOOL_MODULES": ""}
    )
    async with Client(server, read_timeout_seconds=50) as client:
        return (await client.list_tools()).model_dump(by_alias=True, mode="json", exclude_none=True)


def tokens(*texts: str) -> list[int]:
    done = node(HERE / "count_tokens.mjs", MODULES, input=json.dumps(texts), timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def model_view(result: dict[str, Any]) -> list[str]:
    return [compact({key: tool[key] for key in ("name", "description", "inputSchema")}) for tool in result["tools"]]


async def test_the_catalogue_stays_within_its_budget(home: Path) -> None:
    everything, default, lite = await listed("--toolsets", "all"), await listed(), await listed("--lite")
    views = [model_view(result) for result in (everything, default, lite)]
    text = instructions(select(ToolSettings()))
    *counts, whole, sent = tokens(*(entry for view in views for entry in view), compact(everything), text)
    sums = []
    for view in views:
        sums.append(sum(counts[: len(view)]))
        counts = counts[len(view) :]
    print(f"{len(views[0])} tools {sums[0]}, default {sums[1]}, lite {sums[2]}, list {whole}, said {sent}")
    assert sums[0] <= min(ALL_TOOLS, PER_TOOL * len(views[0]))
    assert sums[1] <= DEFAULT_TOOLS
    assert sums[2] <= LITE_TOOLS
    assert whole <= WHOLE_LIST
