"""Helpers of the fronts' tests: names of fixtures' types, and the server as a bare process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from mcp import Client

ERAS = ("legacy", "auto")  # the handshake of 2025-11-25; probing, which finds 2026-07-28

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Connect = Callable[..., AbstractAsyncContextManager[Client]]

INITIALIZE = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Raw:
    """The server and its pipes, without a client library in between."""

    def __init__(self, *options: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        argv = [sys.executable, "-m", "aisp_mcp", "--serve", *options]
        env = {**os.environ, **(env or {})}
        self.process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, cwd=cwd, env=env
        )

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def handshake(self) -> None:
        self.send(id=0, **INITIALIZE)
        assert self.read()["id"] == 0
        self.send(method="notifications/initialized")

    def call(self, number: int, tool: str, arguments: dict[str, Any]) -> None:
        self.send(id=number, method="tools/call", params={"name": tool, "arguments": arguments})

    def settle(self, number: int) -> None:
        """Read on until the answer to a ping of this number: nothing of an earlier test is left."""
        self.send(id=number, method="ping")
        while self.read().get("id") != number:
            pass

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait()
