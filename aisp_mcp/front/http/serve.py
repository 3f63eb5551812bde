"""Serve over HTTP until a signal comes."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from aisp_mcp.front.http import address, tokens
from aisp_mcp.front.http.app import AccessRules, build_app, principal_of
from aisp_mcp.front.http.web import Web, configured, end_on_signal
from aisp_mcp.front.mcp.server import Handlers, build_server
from aisp_mcp.front.mcp.stdio import reconcile
from aisp_mcp.front.shutdown import exit_now
from aisp_mcp.jobs import tracing
from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")

GRACE_S = 0.8  # so that the process ends within a second of a signal

Exit = Callable[[int], None]  # ends this process with an exit code


def serve_http(ctx: Context, options: argparse.Namespace) -> int:
    """Serve; returns only by ending the process. Raises AispError if it may not or cannot listen on the address."""
    bound = address.parse(options.http)
    address.check_exposure(bound, options)
    new_token = None if options.token_file else tokens.new_token()
    principals = {new_token: tokens.PRINCIPAL} if new_token else tokens.read_tokens(options.token_file)
    listener = address.listen(bound)
    if bound.path is None:
        bound = replace(bound, port=listener.getsockname()[1])
    rules = AccessRules(
        tokens=tokens.Tokens(principals),
        origin=f"http://{options.allow_host[0]}" if bound.everywhere else bound.origin,
        hosts=[*bound.hosts, *options.allow_host],
        origins=options.allow_origin,
    )
    _run(ctx, rules, listener, partial(_announce, bound, new_token), partial(_exit, bound.path))
    return 0


def _run(ctx: Context, rules: AccessRules, listener: socket.socket, announce: Callable[[], None], end: Exit) -> None:
    """Serve on this socket until a signal arrives, then end the process."""
    handlers = Handlers(ctx, principal_of=principal_of)
    web = Web(configured(build_app(build_server(handlers), rules, handlers.ctx)))
    code = 0
    try:
        tracing.start("aisp-mcp")
        anyio.run(_serve, web, handlers, listener, announce, end)
    except BaseException:
        log.exception("the server ended with an error")
        code = 1
    end(code)


async def _serve(
    web: Web, handlers: Handlers, listener: socket.socket, announce: Callable[[], None], end: Exit
) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(end_on_signal, web, GRACE_S, end)
        tasks.start_soon(reconcile, handlers)
        announce()  # from here on connections are queued and signals are handled
        await web.serve([listener])
        end(0)


def _exit(path: Path | None, code: int) -> None:
    """Remove the Unix socket, if any, and end the process."""
    if path is not None:
        path.unlink(missing_ok=True)
    exit_now(code)


def _announce(bound: address.Address, new_token: str | None) -> None:
    """Print the address and a new token to standard error; the token is printed nowhere else."""
    message = f"aisp-mcp: listening on {bound.path or bound.origin + address.PATH}"
    if new_token:
        message += f"\naisp-mcp: shown once, clients send it as 'Authorization: Bearer TOKEN'; TOKEN is {new_token}"
    print(message, file=sys.stderr, flush=True)
