"""Serve the pages on this machine until a signal comes."""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import anyio
from anyio.abc import TaskStatus

from aisp_mcp.front.dashboard.access import Door
from aisp_mcp.front.dashboard.app import build_app
from aisp_mcp.front.ending import leave
from aisp_mcp.front.http.address import Address, listen
from aisp_mcp.front.http.web import Web, configured
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")
HOST, GRACE_S = "127.0.0.1", 0.5


def serve(ctx: Context, port: int, may_run: bool, scratch: Path) -> int:
    """Does not return but by ending the process; scratch, a folder, goes with it. Raises UsageError CANNOT_LISTEN."""
    listener = listen(Address(HOST, port))
    place = Address(HOST, listener.getsockname()[1])
    door = Door(place.port)
    web = Web(configured(build_app(ctx, door, place.hosts, may_run)))
    print(f"aisp dashboard: open {place.origin}/login?token={door.new_link()}", flush=True)
    does = "starts and cancels jobs" if may_run else "only shows (--allow-run lets it start jobs)"
    print(f"  The link works once, on this machine. The page {does}. Ctrl-C ends it.", file=sys.stderr, flush=True)
    code = 0
    try:
        anyio.run(_serve, web, listener, scratch)
    except BaseException:
        log.exception("the dashboard ended with an error")
        code = 1
    _end(code, scratch)


async def _serve(web: Web, listener: socket.socket, scratch: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, web, scratch)
        await web.serve([listener])
        _end(0, scratch)


async def _end_on_signal(web: Web, scratch: Path, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Streams of events stay open for as long as a page does: they are not waited for."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            web.should_exit = True
            await anyio.sleep(GRACE_S)
            _end(0, scratch)


def _end(code: int, scratch: Path) -> NoReturn:
    shutil.rmtree(scratch, ignore_errors=True)
    leave(code)
