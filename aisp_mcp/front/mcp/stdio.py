"""Serve over standard input and output: start fast, end within a second, leave jobs alone."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from aisp_mcp.front.ending import leave, parent_gone
from aisp_mcp.front.mcp.malformed import reply_to
from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.jobs import tracing
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")

SETTLE_S, GRACE_S = 0.05, 0.6
RECONCILE_AFTER_S = 2.0


def serve(ctx: Context) -> int:
    """Serve until the input ends or a signal comes; then the process ends at once.

    A tool that is still busy in a thread cannot be stopped, and Python would wait for it: hence the hard exit. Jobs
    are processes of their own and live on.
    """
    code = 0
    try:
        tracing.start("aisp-mcp")
        anyio.run(_serve, Handlers(ctx))
    except BaseException:
        log.exception("the server ended with an error")
        code = 1
    leave(code)
    return code


async def _serve(handlers: Handlers) -> None:
    server = build_server(handlers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal)
        tasks.start_soon(_end_with_parent)
        tasks.start_soon(reconcile, handlers)
        async with stdio_server() as (read_stream, write_stream):
            patient: Any = PatientStream(read_stream, write_stream, handlers)
            # What a tool prints is buffered, and would reach the wire when the transport has given it back.
            with contextlib.redirect_stdout(sys.stderr):
                await server.run(patient, write_stream, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_on_signal() -> None:
    """The reader sits in a thread that no signal can wake, so the end is a hard one here too."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async for _ in signals:
            leave(0)


async def _end_with_parent() -> None:
    """Over pipes the client is the parent: when it is gone, nobody reads the answers."""
    await parent_gone()
    leave(0)


async def reconcile(handlers: Handlers) -> None:
    """Look after jobs whose process vanished, when the first answer is out: it must not wait for this."""
    with anyio.move_on_after(RECONCILE_AFTER_S):
        await handlers.served.wait()

    def work() -> None:
        try:
            handlers.ctx.jobs.reconcile()
        except Exception as error:
            log.warning("jobs could not be reconciled: %s", error)

    await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


class PatientStream:
    """The reading stream, which answers what is no message, and ends when calls in work are answered, or 0.6 s later.

    Without it `printf REQUESTS | aisp-mcp` would drop the last answers: the protocol loop cancels what is in work as
    soon as it sees the end.
    """

    def __init__(self, inner: Any, out: Any, handlers: Handlers) -> None:
        self._inner = inner
        self._out = out
        self._handlers = handlers

    @property
    def last_context(self) -> Any:
        return self._inner.last_context

    async def receive(self) -> Any:
        try:
            while isinstance(item := await self._inner.receive(), Exception):
                reply = reply_to(item)
                if reply is not None:
                    await self._out.send(SessionMessage(reply))
            return item
        except anyio.EndOfStream:
            await self._settle()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> PatientStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def _settle(self) -> None:
        with anyio.move_on_after(GRACE_S):
            await anyio.sleep(SETTLE_S)
            while self._handlers.active:
                await anyio.sleep(SETTLE_S / 5)
