"""Tools that read files of any size, each call in a process of its own: parsing holds the interpreter for seconds.

A fork server, started at the first such call, has the tools loaded and forks in milliseconds. What it forks ends with
this process, and it does when nobody is left.
"""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import os
import select
import threading
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aisp_mcp.envelope import Envelope
from aisp_mcp.errors import ProcessError
from aisp_mcp.process.python import SAFE
from aisp_mcp.server import dispatch, registry
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import ReadingParams
from aisp_mcp.settings import Settings


@dataclass(frozen=True)
class Asked:
    """One call, and the parts of its context that another process can have."""

    tool: str
    args: dict[str, Any]
    settings: Settings
    principal: str
    allow_write: tuple[Path, ...]
    tools: frozenset[str] | None


class Apart:
    """Call it in a thread: it waits for the answer. Raises ProcessError CRASHED when there is none."""

    def __init__(self) -> None:
        self._processes = multiprocessing.get_context("forkserver")
        reading = {tool.fn.__module__ for tool in registry.tools() if issubclass(tool.params, ReadingParams)}
        self._processes.set_forkserver_preload([__name__, *sorted(reading)])
        self._lock = threading.Lock()

    def __call__(self, tool: str, args: dict[str, Any], ctx: Context) -> Envelope:
        asked = Asked(tool, args, ctx.settings, ctx.principal, ctx.allow_write, ctx.tools)
        ours, theirs = self._processes.Pipe(duplex=False)
        self._start_server()
        process = self._processes.Process(target=answer, args=(theirs, asked), daemon=True)
        with ours:
            process.start()
            theirs.close()
            try:
                said = ours.recv_bytes()
            except EOFError:
                process.join()
                hint = "Was it killed for its memory? Try with a smaller file."
                raise ProcessError("CRASHED", f"{tool} ended without an answer ({process.exitcode}).", hint) from None
        process.join()
        return Envelope.model_validate_json(said)

    def _start_server(self) -> None:
        """Start the fork server, if there is none, without the working folder on its search path."""
        with self._lock:
            if SAFE.items() <= os.environ.items():
                forkserver.ensure_running()
                return
            os.environ.update(SAFE)
            try:
                forkserver.ensure_running()
            finally:
                for name in SAFE:
                    del os.environ[name]


def answer(pipe: Connection, asked: Asked) -> None:
    """In the new process: one call. Nothing of it reaches the protocol's pipes."""
    _end_with_the_server()
    os.dup2(2, 1)
    gc.disable()  # one answer, and the end: there is nothing to save memory for, and large documents are slow to search
    dispatch.load_tool(asked.tool, asked.settings)
    ctx = Context(settings=asked.settings, principal=asked.principal, allow_write=asked.allow_write, tools=asked.tools)
    pipe.send_bytes(dispatch.execute(asked.tool, asked.args, ctx).model_dump_json().encode())


def _end_with_the_server() -> None:
    """Its end closes a pipe, and the kernel sends SIGIO, which ends this process even while Python is held."""
    server = multiprocessing.parent_process()
    assert server is not None
    watched = server.sentinel
    fcntl.fcntl(watched, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([watched], [], [], 0)[0]:
        os._exit(1)
