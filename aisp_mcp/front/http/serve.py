"""Serve over HTTP until a signal comes."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskStatus

from aisp_mcp.front.ending import leave
from aisp_mcp.front.http import address, tokens
from aisp_mcp.front.http.app import Door, build_app, principal_of
from aisp_mcp.front.http.web import Web, configured
from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.front.mcp.stdio import reconcile
from aisp_mcp.jobs import tracing
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")

GRACE_S = 0.8  # gone within a second

End = Callable[[int], None]  # end this process with this code


def serve_http(ctx: Context, options: argparse.Namespace) -> int:
    """Does not return but by ending the process. Raises AispError when it must not or cannot listen there."""
    place = address.parse(options.http)
    address.check_exposure(place, options)
    made = None if options.token_file else tokens.new_token()
    known = {made: tokens.PRINCIPAL} if made else tokens.read_tokens(options.token_file)
    listener = address.listen(place)
    if place.path is None:
        place = replace(place, port=listener.getsockname()[1])
    door = Door(
        tokens=tokens.Tokens(known),
        origin=f"http://{options.allow_host[0]}" if place.everywhere else place.origin,
        hosts=[*place.hosts, *options.allow_host],
        origins=options.allow_origin,
    )
    _run(ctx, door, listener, partial(_announce, place, made), partial(_end, place.path))
    return 0


def _run(ctx: Context, door: Door, listener: socket.socket, announce: Callable[[], None], end: End) -> None:
    """Serve on this socket until a signal comes, then end the process."""
    handlers = Handlers(ctx, principal_of=principal_of)
    web = Web(configured(build_app(build_server(handlers), door, handlers.ctx)))
    code = 0
    try:
        tracing.start("aisp-mcp")
        anyio.run(_serve, web, handlers, listener, announce, end)
    except BaseException:
        log.exception("the server ended with an error")
        code = 1
    end(code)


async def _serve(web: Web, handlers: Handlers, listener: socket.socket, announce: Callable[[], None], end: End) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, web, end)
        tasks.start_soon(reconcile, handlers)
        announce()  # connections are queued from now on, and a signal ends us in good order
        await web.serve([listener])
        end(0)


async def _end_on_signal(web: Web, end: End, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Let answers that are due go out, then end, whatever a tool is busy with in its thread."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            web.should_exit = True
            await anyio.sleep(GRACE_S)
            end(0)


def _end(path: Path | None, code: int) -> None:
    """A Unix socket's file goes with its server."""
    if path is not None:
        path.unlink(missing_ok=True)
    leave(code)


def _announce(place: address.Address, made: str | None) -> None:
    """To standard error, as a command line's own words; the token appears here and nowhere else."""
    said = f"aisp-mcp: listening on {place.path or place.origin + address.PATH}"
    if made:
        said += f"\naisp-mcp: shown once, clients send it as 'Authorization: Bearer TOKEN'; TOKEN is {made}"
    print(said, file=sys.stderr, flush=True)
