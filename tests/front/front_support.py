"""Helpers of the fronts' tests: names of fixtures' types, and the server as a bare process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import IO, Any
from unittest import mock

import anyio
import forks
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

ERAS = ("legacy", "auto")  # the handshake of 2025-11-25; probing, which finds 2026-07-28

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Connect = Callable[..., AbstractAsyncContextManager[Client]]

INITIALIZE = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Raw:
    """The server, which is a fork, and its pipes, without a client library in between."""

    def __init__(self, *options: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        argv = [sys.executable, "-m", "aisp_mcp", "--serve", *options]
        env = {**os.environ, **(env or {})}
        self.process = forks.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, cwd=cwd, env=env)

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


class _Output(ByteReceiveStream):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if self._file.closed:
            raise anyio.ClosedResourceError
        await anyio.wait_readable(self._file)
        if chunk := os.read(self._file.fileno(), max_bytes):
            return chunk
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._file)
            self._file.close()


class _Input(ByteSendStream):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        os.set_blocking(file.fileno(), False)

    async def send(self, item: bytes) -> None:
        while item:
            await anyio.wait_writable(self._file)
            item = item[os.write(self._file.fileno(), item) :]

    async def aclose(self) -> None:
        if not self._file.closed:
            anyio.notify_closing(self._file)
            self._file.close()


class _Fork(Process):
    """A fork with the pipes that the library's client wants."""

    def __init__(self, process: forks.Popen) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, _Input(process.stdin), _Output(process.stdout)

    pid = property(lambda self: self._process.pid)
    returncode = property(lambda self: self._process.poll())
    stdin = property(lambda self: self._input)
    stdout = property(lambda self: self._output)
    stderr = None

    async def wait(self) -> int:
        return await anyio.to_thread.run_sync(self._process.wait)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, signal: int) -> None:
        self._process.send_signal(signal)

    async def aclose(self) -> None:
        await self._input.aclose()
        await self._output.aclose()
        await self.wait()


@asynccontextmanager
async def over_pipes(*options: str, env: dict[str, str] | None = None) -> AsyncIterator[Any]:
    """The library's transport to a server that it starts, `python -m aisp_mcp OPTIONS`, which is a fork."""

    async def open_process(command: list[str], **how: Any) -> Process:
        return _Fork(forks.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **how))

    argv = ["-m", "aisp_mcp", *options]
    server = StdioServerParameters(command=sys.executable, args=argv, env={**os.environ, **(env or {})})
    with mock.patch.object(anyio, "open_process", open_process):
        async with stdio_client(server) as streams:
            yield streams
