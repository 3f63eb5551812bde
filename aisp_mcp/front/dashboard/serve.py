"""Serve the pages on this machine until a signal arrives."""

from __future__ import annotations

import logging
import shutil
import socket
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import anyio

from aisp_mcp.front.dashboard.access import Access
from aisp_mcp.front.dashboard.app import build_app
from aisp_mcp.front.http.address import Address, listen
from aisp_mcp.front.http.web import Web, configured, end_on_signal
from aisp_mcp.front.shutdown import exit_now
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")
HOST, GRACE_S = "127.0.0.1", 0.5


def serve(ctx: Context, port: int, may_run: bool, scratch: Path) -> int:
    """Serve, and end the process; the folder scratch is removed then. Raises UsageError CANNOT_LISTEN."""
    listener = listen(Address(HOST, port))
    address = Address(HOST, listener.getsockname()[1])
    access = Access(address.port)
    web = Web(configured(build_app(ctx, access, address.hosts, may_run)))
    print(f"aisp dashboard: open {address.origin}/login?token={access.token}", flush=True)
    abilities = "can start and cancel jobs" if may_run else "are read-only (--allow-run lets them start jobs)"
    about = f"  The link works on this machine until the command ends. The pages {abilities}. Ctrl-C stops it."
    print(about, file=sys.stderr, flush=True)
    code = 0
    try:
        anyio.run(_serve, web, listener, scratch)
    except BaseException:
        log.exception("the dashboard ended with an error")
        code = 1
    _end(code, scratch)


async def _serve(web: Web, listener: socket.socket, scratch: Path) -> None:
    end = partial(_end, scratch=scratch)
    async with anyio.create_task_group() as tasks:
        await tasks.start(end_on_signal, web, GRACE_S, end)
        await web.serve([listener])
        end(0)


def _end(code: int, scratch: Path) -> NoReturn:
    shutil.rmtree(scratch, ignore_errors=True)
    exit_now(code)
