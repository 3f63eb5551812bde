"""The server over HTTP as a process, clients of it, and requests written by hand."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import forks
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from waiting import PATIENCE_S

MODERN = "2026-07-28"


class Served:
    """`aisp-mcp --http ADDRESS` with its own standard error. token: the printed one, or the first of the file.

    It is a fork; popen=subprocess.Popen makes it a new interpreter.
    """

    def __init__(
        self,
        *options: str,
        address: str = "127.0.0.1:0",
        env: dict[str, str] | None = None,
        popen: type[subprocess.Popen[str]] = forks.Popen,
        command: Sequence[str] = ("aisp_mcp",),
    ) -> None:
        argv = [sys.executable, "-m", *command, "--http", address, *options]
        self.process = popen(
            argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self.said = self._read_line()
        self.token = ""
        if "--token-file" not in options:
            self.said += (line := self._read_line())
            self.token = line.split()[-1]
        match = re.search(r"listening on (\S+)", self.said)
        assert match, self.said + self.process.communicate(timeout=PATIENCE_S)[1]
        self.url = match[1]
        port = re.search(r":(\d+)/mcp", self.url)
        self.port = int(port[1]) if port else 0

    def _read_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def stop(self) -> str:
        """End it; everything it has written to standard error."""
        self.process.terminate()
        return self.said + self.process.communicate(timeout=PATIENCE_S)[1]

    @asynccontextmanager
    async def client(self, era: str = "auto", token: str = "", uds: Path | None = None) -> AsyncIterator[Client]:
        """An MCP client with this token."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        transport = httpx2.AsyncHTTPTransport(uds=str(uds)) if uds else None
        url = "http://localhost/mcp" if uds else self.url
        async with httpx2.AsyncClient(headers=headers, transport=transport, timeout=60) as web:
            server: Any = streamable_http_client(url, http_client=web)
            async with Client(server, mode=era, read_timeout_seconds=50) as client:
                yield client

    def send(self, text: str) -> tuple[int, str]:
        """Raw text on a connection of its own; status, and headers with body."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as wire:
            wire.sendall(text.encode("latin-1"))
            answer = http.client.HTTPResponse(wire)
            answer.begin()
            return answer.status, f"{answer.headers}{answer.read().decode()}"

    def post(self, headers: dict[str, str] | None = None, path: str = "/mcp", **options: Any) -> tuple[int, str]:
        """A call of a tool in the newest protocol, good but for what is given. A header of None is left out."""
        return self.send(self.written(headers, path, **options))

    def written(
        self, headers: dict[str, Any] | None = None, path: str = "/mcp", method: str = "POST", body: str | None = None
    ) -> str:
        text = json.dumps(CALL) if body is None else body
        lines = {
            "Host": f"127.0.0.1:{self.port}",
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "aisp_demo_echo",
            "Content-Length": str(len(text)),
            "Connection": "close",
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n{text}"


CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "aisp_demo_echo",
        "arguments": {"count": 1},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        },
    },
}


def token_file(path: Path, *names: str, mode: int = 0o600) -> dict[str, str]:
    """A file with one token per name; tokens by name."""
    tokens = {name: secrets.token_urlsafe(32) for name in names}
    path.write_text("# who may come in\n" + "".join(f"{name} {token}\n" for name, token in tokens.items()))
    path.chmod(mode)
    return tokens
