"""Serve over standard input and output: start fast, end within a second, leave jobs running.

Malformed lines, which the protocol library drops, are answered with an error.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import signal
import sys
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc
from pydantic import ValidationError

from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.front.shutdown import exit_now, wait_for_parent_exit
from aisp_mcp.jobs import tracing
from aisp_mcp.server import registry
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")

SETTLE_S, GRACE_S = 0.05, 0.6
RECONCILE_AFTER_S = 2.0


def serve(ctx: Context) -> int:
    """Serve until the input ends or a signal arrives, then end the process at once.

    Python would wait for a tool that is still busy in a thread, and cannot stop it: hence the hard exit. Jobs are
    separate processes and keep running.
    """
    code = 0
    try:
        tracing.start("aisp-mcp")
        anyio.run(_serve, Handlers(ctx))
    except BaseException:
        log.exception("the server ended with an error")
        code = 1
    exit_now(code)
    return code


async def _serve(handlers: Handlers) -> None:
    server = build_server(handlers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal)
        tasks.start_soon(_end_with_parent)
        tasks.start_soon(_load_listed, handlers)
        tasks.start_soon(reconcile, handlers)
        async with stdio_server() as (read_stream, write_stream):
            stream: Any = PatientStream(read_stream, write_stream, handlers)
            # Buffered output of a tool could reach the wire after the transport restores standard output.
            with contextlib.redirect_stdout(sys.stderr):
                await server.run(stream, write_stream, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_on_signal() -> None:
    """End the process on a signal: the reader blocks in a thread that signals cannot wake."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async for _ in signals:
            exit_now(0)


async def _end_with_parent() -> None:
    """End the process when its parent, the client, has exited."""
    await wait_for_parent_exit()
    exit_now(0)


async def _load_listed(handlers: Handlers) -> None:
    """Import the listed tools once the first answer has left, so that the first call need not wait for it."""
    await handlers.served.wait()
    await anyio.sleep(SETTLE_S)

    def work() -> None:
        gc.disable()
        for name in handlers.selection.listed:
            registry.get(name)
        gc.freeze()
        gc.enable()

    await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def reconcile(handlers: Handlers) -> None:
    """Reconcile jobs whose process vanished, but only after the first answer, so as not to delay it."""
    with anyio.move_on_after(RECONCILE_AFTER_S):
        await handlers.served.wait()

    def work() -> None:
        try:
            handlers.ctx.jobs.reconcile()
        except Exception as error:
            log.warning("jobs could not be reconciled: %s", error)

    await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


class PatientStream:
    """Read stream that answers malformed lines, and delays the end of input until running calls are answered.

    It waits at most 0.6 s. Without it `printf REQUESTS | aisp-mcp` would drop the last answers, because the protocol
    loop cancels running calls as soon as the input ends.
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
                reply = error_response(item)
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


_EXAMPLE = 'One message is one line, such as {"jsonrpc":"2.0","id":1,"method":"tools/list"}.'

_LIMITS = "Its text must be valid Unicode and not deeply nested."


def error_response(error: Exception) -> jsonrpc.JSONRPCError | None:
    """Return the response to unreadable input, or None if none is due: for an empty line or a notification."""
    raw, is_parsed = _input_of(error)
    if not is_parsed and not raw.strip():
        return None
    try:
        value = raw if is_parsed else json.loads(raw)
    except RecursionError:
        return _response(None, jsonrpc.PARSE_ERROR, "This message cannot be read.", _LIMITS)
    except ValueError:
        return _response(None, jsonrpc.PARSE_ERROR, "This line is not JSON.", _EXAMPLE)
    if isinstance(value, list):
        return _response(None, jsonrpc.INVALID_REQUEST, "Batches are not part of the protocol.", _EXAMPLE)
    if not isinstance(value, dict):
        return _response(None, jsonrpc.INVALID_REQUEST, "This is not a message.", _EXAMPLE)
    request_id = value.get("id")
    if "id" not in value and isinstance(value.get("method"), str):
        return None
    params = value.get("params", {})
    if value.get("jsonrpc") == "2.0" and isinstance(value.get("method"), str) and isinstance(params, dict):
        return _response(request_id, jsonrpc.PARSE_ERROR, "This message cannot be read.", _LIMITS)
    return _response(
        request_id if _is_id(request_id) else None,
        jsonrpc.INVALID_REQUEST,
        "This is not a JSON-RPC 2.0 message.",
        _EXAMPLE,
    )


def _response(request_id: Any, code: int, message: str, hint: str) -> jsonrpc.JSONRPCError:
    data = {"code": "MALFORMED", "hint": hint}
    return jsonrpc.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message, data=data)
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _input_of(error: Exception) -> tuple[Any, bool]:
    """Return the input from the library's error, as text or as a parsed JSON value, and whether it was parsed."""
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if not details or details[0]["type"] == "json_invalid":
        return (details[0]["input"] if details else ""), False
    messages = [detail["input"] for detail in details if len(detail["loc"]) < 2 or detail["type"] == "missing"]
    return (messages[0] if messages else {}), True
