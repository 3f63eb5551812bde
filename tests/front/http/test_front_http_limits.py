"""One principal, or a stranger, takes all the server will give, and another principal is still answered."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import Event, create_task_group, wait_all_tasks_blocked
from http_support import Served, token_file

from aisp_mcp.front.http import app, limits, web

HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    return path, token_file(path, "alice", "bob")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, tokens: tuple[Path, dict[str, str]]) -> Iterator[Served]:
    """One server: each test takes other things of it."""
    env = {"AISP_HOME": str(tmp_path_factory.mktemp("home")), "AISP_TOOL_MODULES": "front_tools"}
    server = Served("--token-file", str(tokens[0]), env={**env, "PYTHONPATH": str(Path(__file__).parents[1])})
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))


def bearer(token: str) -> dict[str, Any]:
    return {"Authorization": f"Bearer {token}"}


def old_session(served: Served, token: str) -> int:
    without = dict.fromkeys(("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"))
    return served.post({**bearer(token), **without}, body=json.dumps(HANDSHAKE))[0]


def test_sessions_of_one_principal_leave_room_for_another(served: Served, tokens: tuple[Path, dict[str, str]]) -> None:
    alice, bob = tokens[1]["alice"], tokens[1]["bob"]
    opened = Counter(old_session(served, alice) for _ in range(200))
    assert opened == {200: app.SESSIONS_EACH, 503: 200 - app.SESSIONS_EACH}
    assert old_session(served, bob) == 200
    assert served.post(bearer(bob))[0] == 200


def half_a_head(served: Served) -> str:
    return served.written(body="{}").partition("Content-Type")[0]


def half_a_body(served: Served) -> str:
    return served.written({"Authorization": None, "Content-Length": "1000", "Connection": "keep-alive"}, body="{")


def nothing(_: Served) -> str:
    return ""


@pytest.mark.parametrize("sent", [(nothing, half_a_head), (half_a_body,)])
def test_half_requests_of_strangers_lock_nobody_out(
    served: Served, tokens: tuple[Path, dict[str, str]], sent: Any
) -> None:
    with contextlib.ExitStack() as stack:
        wires = connected(served, stack, web.CONNECTIONS + 50)
        for half_open, text in zip(wires, itertools.cycle(sent), strict=False):
            with contextlib.suppress(ConnectionError):
                half_open.sendall(text(served).encode())
        assert [served.post(bearer(tokens[1]["bob"]))[0] for _ in range(5)] == [200] * 5
        if nothing in sent:  # the first ones had to give way
            assert (first := answered(wires[0])).status == 503
            assert int(first.headers["Retry-After"]) > 0


def test_all_who_connect_before_they_send_are_answered(served: Served, tokens: tuple[Path, dict[str, str]]) -> None:
    text = served.written({**bearer(tokens[1]["alice"])}).encode()
    with contextlib.ExitStack() as stack:
        wires = connected(served, stack, 300)
        for wire in wires:
            wire.sendall(text)
        told = [answered(wire) for wire in wires]
    assert {answer.status for answer in told} <= {200, 429}
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in told if answer.status == 429)


def connected(served: Served, stack: contextlib.ExitStack, count: int) -> list[socket.socket]:
    return [stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 20)) for _ in range(count)]


def answered(wire: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(wire)
    answer.begin()
    return answer


@pytest.mark.anyio
async def test_a_request_beyond_those_being_answered_is_told_when_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "CONNECTIONS", 8)
    told: list[Any] = []
    leave = Event()

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await leave.wait()

    async def send(message: Any) -> None:
        told.append(message)

    app: Any = web.configured(inner).app
    async with create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(app, {"type": "http"}, None, send)
        await wait_all_tasks_blocked()
        leave.set()
    assert told[0]["status"] == 503
    assert (b"retry-after", b"1") in told[0]["headers"]
    assert [message["type"] for message in told] == ["http.response.start", "http.response.body"]


def test_a_stranger_is_refused_before_the_body_is_there(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 20) as connection:
        connection.sendall(half_a_body(served).encode())
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while received := connection.recv(65536):  # to its end, although the body never comes
                answer += received
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_an_answered_connection_takes_the_next_request(served: Served, tokens: tuple[Path, dict[str, str]]) -> None:
    text = served.written({**bearer(tokens[1]["bob"]), "Connection": "keep-alive"})
    with socket.create_connection(("127.0.0.1", served.port), 20) as connection:
        for pieces in ((text[:40], text[40:]), (text,), (text,)):
            for piece in pieces:
                connection.sendall(piece.encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.status == 200
            assert b'"status":"ok"' in answer.read()


@pytest.mark.anyio
async def test_requests_that_stay_open_are_counted_by_principal() -> None:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    told: list[int] = []
    entered, leave = Event(), Event()

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await leave.wait()

    async def send(message: Any) -> None:
        told.extend([message["status"]] if "status" in message else [])

    limited = limits.LimitMiddleware(inner, limits.RequestLimits(principal_concurrent=1, anonymous_concurrent=1))

    async def knock(name: str | None) -> None:
        user = name and AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
        await limited({"type": "http", "user": user}, None, send)  # type: ignore[arg-type]

    async with create_task_group() as tasks:
        for name in ("alice", "bob", None):
            tasks.start_soon(knock, name)
        await entered.wait()
        await knock("alice")
        await knock(None)
        assert told == [429, 429]
        leave.set()
    await knock("alice")
    assert told == [429, 429]


@pytest.mark.anyio
async def test_a_head_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time-out is shortened: what is shown is that later bytes do not prolong it."""
    import asyncio

    import uvicorn

    monkeypatch.setattr(web, "HEAD_S", 0.3)
    config = uvicorn.Config(lambda *_: None, http=web.Connection, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                writer.write(b"x")
                await writer.drain()
                sent += 1
                if reader.at_eof():
                    break
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.02)
        writer.close()
        server.should_exit = True
        await serving
    assert 2 <= sent < 1000
