"""The same call gives the same envelope over MCP and on the command line, errors included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from envelope_cases import CASES, comparable
from front_support import Cli, Connect

pytestmark = pytest.mark.anyio

# Exit codes of the commands above, where it is not 0: an error of the tool, a usage error, a verdict that fails.
EXIT = {
    **dict.fromkeys(("demo refuse", "demo boom", "demo count 13", "bench pareto"), 1),
    **dict.fromkeys(("demo echo", "demo echo x", "demo echo 99", "demo echo --cuont 1", "demo echo 1 --mode loud"), 2),
    "demo judge --no-passed": 3,
}


@pytest.mark.parametrize(("tool", "arguments", "argv"), CASES, ids=[" ".join(case[2]) for case in CASES])
async def test_mcp_and_cli_give_the_same_envelope(
    connect: Connect, cli_here: Cli, tool: str, arguments: dict[str, Any], argv: list[str]
) -> None:
    async with connect() as client:
        over_mcp = (await client.call_tool(tool, arguments)).structured_content
    done = cli_here(*argv, "--json")
    on_cli = json.loads(done.stdout)
    assert comparable(on_cli) == comparable(over_mcp)
    assert done.returncode == EXIT.get(" ".join(argv), 0)
    assert set(on_cli["meta"]) == set(over_mcp["meta"])
