"""Run tools that read large files in a child process, because parsing holds the interpreter for seconds.

The first such call starts a fork server with the tools already imported, so that later calls start in milliseconds.
The fork server and its children end when this process ends.
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
class SubprocessRequest:
    """One tool call, with the parts of its context that can be pickled."""

    tool: str
    args: dict[str, Any]
    settings: Settings
    principal: str
    allow_write: tuple[Path, ...]
    tools: frozenset[str] | None


class SubprocessCalls:
    """Callable that runs a tool in a child process and blocks until it answers.

    Raises ProcessError CRASHED if the child ends without an answer.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._lock = threading.Lock()
        self._preloads = False

    def __call__(self, tool: str, args: dict[str, Any], ctx: Context) -> Envelope:
        request = SubprocessRequest(tool, args, ctx.settings, ctx.principal, ctx.allow_write, ctx.tools)
        receiver, sender = self._context.Pipe(duplex=False)
        self._start_server()
        process = self._context.Process(target=run_request, args=(sender, request), daemon=True)
        with receiver:
            process.start()
            sender.close()
            try:
                answer = receiver.recv_bytes()
            except EOFError:
                process.join()
                hint = "It may have run out of memory. Try a smaller file."
                raise ProcessError("CRASHED", f"{tool} ended without an answer ({process.exitcode}).", hint) from None
        process.join()
        return Envelope.model_validate_json(answer)

    def _start_server(self) -> None:
        """Start the fork server if needed, without the working folder on its module search path."""
        with self._lock:
            if not self._preloads:  # at the first call: a server that starts has not loaded every tool
                reading = {tool.fn.__module__ for tool in registry.tools() if issubclass(tool.params, ReadingParams)}
                self._context.set_forkserver_preload([__name__, *sorted(reading)])
                self._preloads = True
            if SAFE.items() <= os.environ.items():
                forkserver.ensure_running()
                return
            os.environ.update(SAFE)
            try:
                forkserver.ensure_running()
            finally:
                for name in SAFE:
                    del os.environ[name]


def run_request(pipe: Connection, request: SubprocessRequest) -> None:
    """Run one call in the child and send back its envelope; standard output goes to standard error."""
    _exit_with_parent()
    os.dup2(2, 1)
    gc.disable()  # the process exits after one answer, and collecting slows down large documents
    dispatch.load_tool(request.tool, request.settings)
    ctx = Context(
        settings=request.settings, principal=request.principal, allow_write=request.allow_write, tools=request.tools
    )
    pipe.send_bytes(dispatch.execute(request.tool, request.args, ctx).model_dump_json().encode())


def _exit_with_parent() -> None:
    """Have the kernel end this process with SIGIO when the parent exits, even while the interpreter is busy."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel  # a pipe that the parent's exit closes
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(sentinel, fcntl.F_SETFL, fcntl.fcntl(sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([sentinel], [], [], 0)[0]:
        os._exit(1)
