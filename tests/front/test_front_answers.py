"""Omissions of a cut answer, for callers who are elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from http_support import Served, token_file
from mcp.shared.exceptions import MCPError


@pytest.mark.anyio
async def test_a_cut_answer_is_its_callers_and_names_no_file_of_the_server(home: Path, tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "tokens", "alice", "bob")
    server = Served("--token-file", str(tmp_path / "tokens"))
    try:
        async with server.client(token=tokens["alice"]) as alice, server.client(token=tokens["bob"]) as bob:
            cut = (await alice.call_tool("aisp_demo_big", {"items": 60})).structured_content
            hint = cut["truncated"]["how_to_get"]
            assert str(home) not in hint
            [content] = (await alice.read_resource(hint.rpartition(" ")[2])).contents
            assert len(json.loads(content.text)["result"]["rows"]) == 60
            with pytest.raises(MCPError):
                await bob.read_resource(hint.rpartition(" ")[2])
    finally:
        server.stop()
