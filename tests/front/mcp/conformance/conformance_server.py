"""The server under the official suite: our own over HTTP, with the suite's fixtures or with the shipped catalogue.

Usage: conformance_server.py fixtures|catalogue. Prints its URL; ends with its input. The suite knows no tokens, so the
gate in front of the protocol is given the right one with every request.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn

from aisp_mcp.front.http.app import AccessRules, build_app, principal_of
from aisp_mcp.front.http.limits import RequestLimits
from aisp_mcp.front.http.tokens import Tokens, new_token
from aisp_mcp.front.mcp.server import Handlers, build_server, standard_parts
from aisp_mcp.server.context import Context
from aisp_mcp.server.dispatch import load_catalog
from aisp_mcp.settings import Settings

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class FixtureHandlers(Handlers):
    """Two tools have on the wire the schema the suite looks for."""

    def _entry(self, tool: Any) -> dict[str, Any]:
        entry = super()._entry(tool)
        if tool.name == "json_schema_2020_12_tool":
            entry["inputSchema"] = SCHEMA
        if tool.name == "test_x_mcp_header":
            entry["inputSchema"]["properties"]["region"]["x-mcp-header"] = "Region"
        return entry


def build(kind: str) -> Any:
    """The protocol server."""
    if kind == "catalogue":
        return build_server(Handlers(Context(settings=Settings.from_env()), principal_of))
    from conformance_part import Fixtures

    handlers = FixtureHandlers(
        Context(settings=Settings.from_env()), principal_of, parts=[Fixtures(), *standard_parts()]
    )
    server = build_server(handlers)
    nothing: dict[str, Any] = {}

    async def accept(_: Any, __: Any) -> dict[str, Any]:
        return nothing

    # What the older era has and the newer one dropped; the product offers none of it.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    return server


def with_token(app: Any, token: str) -> Any:
    """The application, every request of which carries the token."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]}
        await app(scope, receive, send)

    return wrapped


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    load_catalog(Settings.from_env())
    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    hosts = [origin.removeprefix("http://"), origin.removeprefix("http://").replace("127.0.0.1", "localhost")]
    token = new_token()
    rules = AccessRules(
        tokens=Tokens({token: "suite"}),
        origin=origin,
        hosts=hosts,
        origins=[f"http://{host}" for host in hosts[1:]],
        limits=RequestLimits(),
    )
    config = uvicorn.Config(with_token(build_app(build(sys.argv[1]), rules), token), log_level="warning", ws="none")
    threading.Thread(target=_end_with_input, daemon=True).start()
    print(f"{origin}/mcp", flush=True)
    asyncio.run(uvicorn.Server(config).serve([listener]))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
