"""Tokens of the server over HTTP: where they are kept, and who sees what with one."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from front_support import ERAS, Cli
from http_attacks import handshake
from http_support import Served, token_file
from waiting import until

BOTH = pytest.mark.parametrize("era", ERAS)


T = "t" * 32


@pytest.mark.anyio
async def test_the_token_is_nowhere_but_where_it_was_printed(served: Served, home: Path, tmp_path: Path) -> None:
    async with served.client() as client:
        arguments = {"steps": 1000, "gate": str(tmp_path / "gate"), "wait_s": 0}
        os.mkfifo(tmp_path / "gate")
        job = (await client.call_tool("aisp_demo_count", arguments)).structured_content["job"]["job_id"]
        for status in (served.post({"Authorization": f"Bearer {served.token}x"})[0], served.post({"Host": "x"})[0]):
            assert status in (401, 421)
        await anyio.to_thread.run_sync(served.post, None, f"/mcp?token={served.token}")

        def of_supervisor_and_worker() -> list[bytes]:
            return texts if len(texts := processes_of(job)) >= 2 else []

        seen = await anyio.to_thread.run_sync(until, of_supervisor_and_worker)
        await client.call_tool("aisp_job_cancel", {"job_id": job})
    for text in [*seen, about(served.process.pid)]:
        assert served.token.encode() not in text
    copies = [path for path in home.rglob("*") if path.is_file() and served.token.encode() in path.read_bytes()]
    assert copies == []
    assert served.stop().count(served.token) == 1


def about(pid: int) -> bytes:
    """Command line and environment of a process, as `ps -ef e` shows them."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


def processes_of(job: str) -> list[bytes]:
    """Command line and environment of each process of a job."""
    texts = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            texts.append(about(int(pid)))
    return [text for text in texts if f"AISP_JOB_ID={job}".encode() in text]


def test_a_token_of_a_file_is_never_printed(home: Path, tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "tokens", "alice")
    server = Served("--token-file", str(tmp_path / "tokens"))
    server.token = tokens["alice"]
    assert server.post()[0] == 200
    assert server.post({"Authorization": "Bearer x"})[0] == 401
    assert server.token.encode() not in about(server.process.pid)
    assert server.token not in server.stop()


@BOTH
@pytest.mark.anyio
async def test_two_clients_see_their_own_jobs(home: Path, tmp_path: Path, era: str, cli: Cli) -> None:
    tokens = token_file(tmp_path / "tokens", "alice", "bob")
    server = Served("--token-file", str(tmp_path / "tokens"))
    jobs: dict[str, str] = {}
    both = anyio.Event()

    async def act(name: str) -> None:
        async with server.client(era, tokens[name]) as client:
            done = await client.call_tool("aisp_demo_count", {"steps": 2, "wait_s": 40})
            jobs[name] = done.structured_content["job"]["job_id"]
            if len(jobs) == 2:
                both.set()
            await both.wait()
            listed = (await client.call_tool("aisp_job_list", {})).structured_content["result"]["jobs"]
            assert [job["job_id"] for job in listed] == [jobs[name]]
            theirs = {"job_id": jobs["bob" if name == "alice" else "alice"]}
            for tool in ("aisp_job_status", "aisp_job_cancel"):
                refused = (await client.call_tool(tool, theirs)).structured_content
                assert refused["error"]["code"] == "UNKNOWN_JOB"
            removed = await client.call_tool("aisp_job_clean", {"keep_days": 0})
            assert removed.structured_content["result"]["jobs"] == 1

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act, "alice")
            tasks.start_soon(act, "bob")
    finally:
        server.stop()
    listed = json.loads(cli("job", "list", "--json").stdout)["result"]["jobs"]
    assert {job["job_id"] for job in listed} == set(jobs.values())


@pytest.mark.anyio
async def test_a_session_belongs_to_whose_token_opened_it(home: Path, tmp_path: Path) -> None:
    tokens = token_file(tmp_path / "tokens", "alice", "bob")
    server = Served("--token-file", str(tmp_path / "tokens"))
    try:
        server.token = tokens["alice"]
        status, answer = server.send(
            handshake(server).replace("Host:", f"Authorization: Bearer {server.token}\r\nHost:")
        )
        assert status == 200
        session = answer.lower().partition("mcp-session-id: ")[2].split()[0]
        old = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session, "Mcp-Method": None, "Mcp-Name": None}
        listing = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert server.post(old, body=listing)[0] == 200
        server.token = tokens["bob"]
        assert server.post(old, body=listing)[0] == 404
        assert server.post(old, method="DELETE", body="")[0] == 404
        server.token = tokens["alice"]
        assert server.post(old, body=listing)[0] == 200
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "mode", "code"),
    [
        (T, 0o644, "TOKEN_FILE_OPEN"),
        (T, 0o640, "TOKEN_FILE_OPEN"),
        ("", 0o600, "BAD_TOKEN_FILE"),
        ("# nothing\n", 0o600, "BAD_TOKEN_FILE"),
        ("short", 0o600, "BAD_TOKEN_FILE"),
        (f"{T}{{}}", 0o600, "BAD_TOKEN_FILE"),
        (f"a b {T}", 0o600, "BAD_TOKEN_FILE"),
        (f"a/b {T}", 0o600, "BAD_TOKEN_FILE"),
        (f"{T}\n{T}x", 0o600, "BAD_TOKEN_FILE"),
        (f"a {T}\nb {T}", 0o600, "BAD_TOKEN_FILE"),
        ("ä" * 40, 0o600, "BAD_TOKEN_FILE"),
    ],
)
def test_a_bad_token_file_is_refused(tmp_path: Path, text: str, mode: int, code: str) -> None:
    from aisp_mcp.errors import AispError
    from aisp_mcp.front.http.tokens import read_tokens

    path = tmp_path / "tokens"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    for bad_file in (path, path.with_name("missing"), tmp_path):
        with pytest.raises(AispError) as caught:
            read_tokens(bad_file)
        assert caught.value.code == (code if bad_file == path else "BAD_TOKEN_FILE")
        assert T not in caught.value.message


def test_names_in_a_token_file_are_principals(tmp_path: Path) -> None:
    from aisp_mcp.front.http.tokens import Tokens, read_tokens

    path = tmp_path / "tokens"
    path.write_text(f"# all\n\n{T}   # no name\nalice {T}a\n")
    path.chmod(0o600)
    tokens = Tokens(read_tokens(path))
    assert [tokens.principal(token) for token in (T, f"{T}a", f"{T}b", "")] == ["http", "http:alice", None, None]
