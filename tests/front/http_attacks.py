"""Requests that must not get in: the good call of http_support, each with one thing wrong."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from http_support import Served

Attack = Callable[[Served], str]


def told(**headers: Any) -> Attack:
    """A good call but for these headers; underscores are dashes, {token} and {port} are filled in."""

    def written(server: Served) -> str:
        filled = {
            name.replace("_", "-"): value and value.format(token=server.token, port=server.port)
            for name, value in headers.items()
        }
        return server.written(filled)

    return written


def at(path: str, method: str = "POST", **headers: Any) -> Attack:
    return lambda server: server.written(headers, path.format(token=server.token), method)


def digest(server: Served) -> str:
    return server.written({"Authorization": f"Bearer {hashlib.sha256(server.token.encode()).hexdigest()}"})


def basic(server: Served) -> str:
    return server.written({"Authorization": f"Basic {b64encode(f':{server.token}'.encode()).decode()}"})


def wrong_then_right(server: Served) -> str:
    text = server.written({"Authorization": "Bearer nonsense"})
    return text.replace("Content-Type", f"authorization: Bearer {server.token}\r\nContent-Type", 1)


def in_the_body(server: Served) -> str:
    return server.written({"Authorization": None}, body=json.dumps({"access_token": server.token}))


def two_hosts(server: Served) -> str:
    return server.written({"Host": "evil.example"}).replace("Accept", f"Host: 127.0.0.1:{server.port}\r\nAccept", 1)


def handshake(server: Served) -> str:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Authorization": None, "MCP-Protocol-Version": None, "Mcp-Method": None, "Mcp-Name": None}
    return server.written(headers, body=json.dumps(body))


NO_TOKEN, OUR_HOST = {"Authorization": None}, "127.0.0.1:{port}"


ATTACKS: dict[str, tuple[int, Attack]] = {
    "no token": (401, told(Authorization=None)),
    "an empty header": (401, told(Authorization="")),
    "the word alone": (401, told(Authorization="Bearer")),
    "an empty token": (401, told(Authorization="Bearer ")),
    "another token": (401, told(Authorization=f"Bearer {'x' * 43}")),
    "a longer token": (401, told(Authorization="Bearer {token}x")),
    "a token in quotes": (401, told(Authorization='Bearer "{token}"')),
    "two spaces": (401, told(Authorization="Bearer  {token}")),
    "two tokens": (401, told(Authorization="Bearer nonsense {token}")),
    "the token without its scheme": (401, told(Authorization="{token}")),
    "another scheme": (401, told(Authorization="Token {token}")),
    "the basic scheme": (401, basic),
    "what we keep of the token": (401, digest),
    "a wrong header before a right one": (401, wrong_then_right),
    "the token in the query": (401, at("/mcp?access_token={token}", Authorization=None)),
    "the token in the query, shorter": (401, at("/mcp?token={token}", Authorization=None)),
    "the token in a cookie": (401, told(Authorization=None, Cookie="token={token}")),
    "the token in another header": (401, told(Authorization=None, X_API_Key="{token}")),
    "the token in the body": (401, in_the_body),
    "a proxy's word": (401, told(Authorization=None, X_Forwarded_User="root", X_Forwarded_For="127.0.0.1")),
    "the handshake": (401, handshake),
    "a GET": (401, at("/mcp", "GET", Authorization=None)),
    "a DELETE": (401, at("/mcp", "DELETE", Authorization=None)),
    "a session nobody opened": (401, told(Authorization=None, Mcp_Session_Id="0" * 32)),
    "another spelling of the path": (404, at("//mcp", **NO_TOKEN)),
    "another case of the path": (404, at("/MCP", **NO_TOKEN)),
    "an encoded path": (401, at("/%6dcp", **NO_TOKEN)),
    "a page": (403, told(Origin="https://evil.example")),
    "a page without an origin": (403, told(Origin="null")),
    "a page on another port": (403, told(Origin="http://127.0.0.1:1")),
    "a page of another local server": (403, told(Origin="http://localhost:3000")),
    "a page with our name in front": (403, told(Origin="http://127.0.0.1:{port}.evil.example")),
    "a page over another scheme": (403, told(Origin="https://127.0.0.1:{port}")),
    "a page after rebinding": (421, told(Host="evil.example", Origin="http://evil.example")),
    "another host": (421, told(Host="evil.example")),
    "another host with our port": (421, told(Host="evil.example:{port}")),
    "our name in front": (421, told(Host="127.0.0.1.evil.example:{port}")),
    "our name on another port": (421, told(Host="127.0.0.1:1")),
    "our name with a user before it": (421, told(Host="x@127.0.0.1:{port}")),
    "a proxy's host": (421, told(Host="evil.example", X_Forwarded_Host=OUR_HOST, Forwarded=f"host={OUR_HOST}")),
    "no host": (400, told(Host=None)),
    "two hosts": (400, two_hosts),
    "a host in the address": (421, lambda s: at("http://evil.example/mcp", Host="evil.example")(s)),
    "a web socket": (401, at("/mcp", "GET", Authorization=None, Upgrade="websocket", Connection="Upgrade")),
}
