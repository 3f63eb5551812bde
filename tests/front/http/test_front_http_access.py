"""The server over HTTP: no stranger and no page of another origin gets in, and what each may ask has a limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from http_attacks import ATTACKS
from http_support import Served


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:{port}", "http://localhost:{port}"])
def test_the_call_that_attacks_are_made_from_is_a_good_one(shared: Served, origin: str | None) -> None:
    status, answer = shared.post({"Origin": origin and origin.format(port=shared.port)})
    assert status == 200
    assert '"status":"ok"' in answer


def test_no_stranger_and_no_page_gets_in(shared: Served) -> None:
    answers = {name: shared.send(attack(shared)) for name, (_, attack) in ATTACKS.items()}
    assert len(answers) >= 30
    assert {name: status for name, (status, _) in answers.items()} == {n: status for n, (status, _) in ATTACKS.items()}
    for name, (_, answer) in answers.items():
        assert "result" not in answer, name
        assert "access-control-allow" not in answer.lower(), name
    assert shared.post()[0] == 200


def test_a_preflight_of_a_strange_page_is_refused(shared: Served) -> None:
    asks = {"Authorization": None, "Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    status, answer = shared.post(asks, method="OPTIONS")
    assert status in (401, 403)
    assert "access-control-allow" not in answer.lower()


def test_a_page_that_is_allowed_gets_in(home: Path) -> None:
    server = Served("--allow-origin", "http://localhost:6274")
    try:
        asks = {"Authorization": None, "Origin": "http://localhost:6274", "Access-Control-Request-Method": "POST"}
        status, answer = server.post(asks, method="OPTIONS")
        assert (status, "access-control-allow-origin: http://localhost:6274" in answer.lower()) == (200, True)
        assert server.post({"Origin": "http://localhost:6274"})[0] == 200
        assert server.post({"Origin": "http://localhost:6275"})[0] == 403
    finally:
        server.stop()


def test_a_refusal_says_where_to_read_on(shared: Served) -> None:
    status, answer = shared.post({"Authorization": None})
    where = f"http://127.0.0.1:{shared.port}/.well-known/oauth-protected-resource/mcp"
    assert (status, f'resource_metadata="{where}"' in answer) == (401, True)
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        status, answer = shared.post({"Authorization": None}, path, method="GET", body="")
        assert status == 200
        body = json.loads(answer.partition("\n\n")[2])
        assert body["resource"] == shared.url
        assert body["bearer_methods_supported"] == ["header"]
        assert "authorization_servers" not in body  # RFC 9728: what would be empty is left out


def test_a_body_has_a_limit(shared: Served) -> None:
    assert shared.post({"Content-Length": str(1 << 21)}, body="")[0] == 413
    assert shared.post(body=json.dumps({"x": "y" * (1 << 20)}))[0] == 413


def test_strangers_cannot_use_up_anybody_elses_turns(served: Served) -> None:
    answers = [served.post({"Authorization": "Bearer wrong"}) for _ in range(150)]
    refused = [answer for status, answer in answers if status == 429]
    assert refused
    assert "retry-after: 1" in refused[0].lower()
    assert {status for status, _ in answers} == {401, 429}
    assert served.post()[0] == 200


@pytest.mark.anyio
async def test_each_principal_has_a_limit_of_its_own() -> None:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    from aisp_mcp.front.http.limits import LimitMiddleware, RequestLimits

    now = 0.0
    told: list[int] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        told.append(200)

    async def send(message: Any) -> None:
        told.extend([message["status"]] if "status" in message else [])

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    middleware = LimitMiddleware(inner, RequestLimits(principal=(10, 3), anonymous=(1, 1)), clock=lambda: now)

    async def knock(name: str | None) -> int:
        user = name and AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
        await middleware({"type": "http", "user": user}, receive, send)
        return told.pop()

    assert [await knock("alice") for _ in range(5)] == [200, 200, 200, 429, 429]
    assert [await knock("bob") for _ in range(2)] == [200, 200]
    assert [await knock(None) for _ in range(2)] == [200, 429]
    assert await knock("anonymous") == 200  # a name cannot be that of the others' bucket
    now = 0.1
    assert [await knock("alice") for _ in range(2)] == [200, 429]
    now = 100.0
    assert [await knock("alice") for _ in range(4)] == [200, 200, 200, 429]
