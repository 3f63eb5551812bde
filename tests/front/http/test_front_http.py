"""The server over HTTP: both eras, nonsense, a damaged store, clients that go away, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from front_support import ERAS
from http_support import CALL, Served
from waiting import PATIENCE_S, until

BOTH = pytest.mark.parametrize("era", ERAS)


@BOTH
@pytest.mark.anyio
async def test_both_eras_are_served(shared: Served, era: str) -> None:
    async with shared.client(era) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[era]
        assert "aisp_triage" in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("aisp_demo_echo", {"count": 2})
        assert result.structured_content["result"]["said"]["count"] == 2


def test_a_damaged_store_is_an_answer(home: Path) -> None:
    home.mkdir()
    (home / "aisp.db").write_text("this is a letter, not a database" * 100)
    server = Served(popen=subprocess.Popen)
    try:
        assert server.post()[0] == 200  # a tool that needs no store
        params = {**CALL["params"], "name": "aisp_job_list", "arguments": {}}
        status, answer = server.post({"Mcp-Name": "aisp_job_list"}, body=json.dumps({**CALL, "params": params}))
        assert (status, "STORE_CORRUPT" in answer) == (200, True)
    finally:
        server.stop()


NONSENSE = [
    "",
    "not json",
    "[]",
    "3",
    "null",
    '"x"',
    "[" * 100_000,
    '{"jsonrpc":"2.0"}',
    '{"id":1}',
    "\x00",
    "\xff",
    "{}",
]


NONSENSE += [json.dumps([CALL, CALL]), json.dumps({**CALL, "id": [1]}), json.dumps({**CALL, "params": 7})]


def test_nonsense_is_refused_and_the_server_goes_on(served: Served) -> None:
    old = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": None, "Mcp-Name": None}
    for headers in ({}, old):
        for body in NONSENSE:
            status, answer = served.post(headers, body=body)
            assert status == 400, (headers, body[:50], answer)
            assert "Traceback" not in answer
    assert served.post()[0] == 200
    assert "Traceback" not in served.stop()


@pytest.mark.anyio
async def test_a_client_that_goes_away_leaves_its_job_running(served: Served, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    arguments = {"steps": 2, "gate": str(tmp_path / "gate"), "wait_s": 40}
    params = {**CALL["params"], "name": "aisp_demo_count", "arguments": arguments}
    with socket.create_connection(("127.0.0.1", served.port)) as wire:
        wire.sendall(
            served.written({"Mcp-Name": "aisp_demo_count"}, body=json.dumps({**CALL, "params": params})).encode()
        )
        async with served.client() as client:
            job: dict[str, Any] | None = None
            while not (job and job["state"] == "running"):
                listed = (await client.call_tool("aisp_job_list", {})).structured_content["result"]["jobs"]
                job = listed[0] if listed else None
            wire.close()
            os.write(gate, b"xx")
            done = await client.call_tool("aisp_job_wait", {"job_ids": [job["job_id"]]})
    assert done.structured_content["result"]["answer"]["result"] == {"steps": 2, "job": True}
    os.close(gate)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_server_although_a_tool_is_busy(served: Served, tmp_path: Path, number: int) -> None:
    ready = tmp_path / "begun"
    params = {**CALL["params"], "name": "aisp_demo_hold", "arguments": {"ready": str(ready)}}
    text = served.written({"Mcp-Name": "aisp_demo_hold"}, body=json.dumps({**CALL, "params": params}))
    with socket.create_connection(("127.0.0.1", served.port)) as wire:
        wire.sendall(text.encode())
        until(ready.exists)
        served.process.send_signal(number)
        served.process.wait(timeout=PATIENCE_S)  # the tool would hold it for ten minutes
    assert served.process.returncode == 0
