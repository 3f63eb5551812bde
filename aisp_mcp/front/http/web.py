"""The web server that all our applications run on. Does not import the protocol library.

It limits connections, and the rest wait in the kernel's queue until one ends. A connection is idle until the head of a
request is complete, and again once its response has been sent. If all are taken, those idle for YIELD_S give way, no
earlier: a client that has just connected is about to send. So a client that opens thousands of connections and sends
nothing loses its own, and thousands that send at once are all answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import h11
import uvicorn
from anyio.abc import TaskStatus
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

CONNECTIONS, IDLE_S = 1024, 30
SPARE = 1 / 8  # of the connections are left for refusing requests while the others are being answered
YIELD_S, PAUSE_S, RETRY_S = 1.0, 0.01, 1
BUSY = "The server has no room for this request"
MAX_HEADERS = 16_384


class Web(uvicorn.Server):
    """uvicorn with our own accepting and without its signal handling, which ignores SIGHUP and waits for threads.

    uvicorn accepts up to 2048 connections before it reads from the first, and answers 503 to all while too many are
    open.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept on these sockets."""
        await super().startup([])
        self._accepting = [asyncio.create_task(self._accept(listener)) for listener in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let requests end."""
        for task in self._accepting:
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        """Accept while there is room."""
        loop, state, most = asyncio.get_running_loop(), self.server_state, most_connections()
        made = partial(Connection, config=self.config, server_state=state, app_state=self.lifespan.state)
        listener.setblocking(False)
        while True:
            while len(state.connections) >= most:
                make_room(state, loop.time() - YIELD_S)
                await asyncio.sleep(PAUSE_S)
            try:
                client, _ = await loop.sock_accept(listener)
                await loop.connect_accepted_socket(made, client)
            except OSError:  # the client has gone, or the process or the machine has no file left
                await asyncio.sleep(PAUSE_S)


async def end_on_signal(
    web: Web,
    grace_s: float,
    end: Callable[[int], object],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Stop serving on a signal, and end the process grace_s later even if a tool or an event stream is still active.

    end: ends the process with an exit code.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            web.should_exit = True
            await anyio.sleep(grace_s)
            end(0)


class Bounded:
    """Answers 503 to requests while too many others are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._most = int(most_connections() * (1 - SPARE))
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._running >= self._most:
            refused = PlainTextResponse(BUSY, 503, {"Retry-After": str(RETRY_S), "Connection": "close"})
            await refused(scope, receive, send)
            return
        self._running += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._running -= 1


def most_connections() -> int:
    """Connections that are open at once: half of the files that this process may open is left to everything else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if files == resource.RLIM_INFINITY else min(CONNECTIONS, files // 2)


def configured(app: ASGIApp) -> uvicorn.Config:
    """Return the limits and headers that all our servers share."""
    return uvicorn.Config(
        Bounded(app),
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,  # it would add only addresses, and query strings may hold secrets
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )


WAITED = f"""HTTP/1.1 503 Service Unavailable\r
Retry-After: {RETRY_S}\r
Content-Type: text/plain; charset=utf-8\r
Content-Length: {len(BUSY)}\r
Connection: close\r
\r
{BUSY}""".encode()
HEAD_S = 10.0  # from the first byte of a head to its last
LINGER_S = 1.0  # for a client to read an early error response while it still sends the body of its request


class Connection(H11Protocol):
    """uvicorn's connection with these limits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._mark_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle().pop(self, None)
        self._expect_head(False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        idle = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if not idle:
            self._idle().pop(self, None)
        self._expect_head(idle and bool(self.conn.trailing_data[0]))

    def on_response_complete(self) -> None:
        unread = self.cycle.more_body
        super().on_response_complete()
        if unread:  # rejected before its body was read
            self._unset_keepalive_if_required()
            self._linger()
        self._mark_idle()

    def give_way(self) -> None:
        """Close while idle; with an answer if there was none yet."""
        self._idle().pop(self, None)
        if self.cycle is None and not self.transport.is_closing():
            self.transport.write(WAITED)
            self._linger()
        else:
            self.transport.abort()

    def _linger(self) -> None:
        """Read no more, and close once the client has had time to read what was written."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self.transport.pause_reading()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def _mark_idle(self) -> None:
        idle = self._idle()
        idle.pop(self, None)
        idle[self] = self.loop.time()

    def _expect_head(self, begun: bool) -> None:
        """Start or cancel the deadline of a request's head; later bytes do not extend it."""
        if begun and self._head_due is None:
            self._head_due = self.loop.call_later(HEAD_S, self.transport.abort)
        elif not begun and self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _idle(self) -> dict[Connection, float]:
        """Since when each idle connection of this server is, longest idle first."""
        return _IDLE.setdefault(self.server_state, {})


_IDLE: WeakKeyDictionary[ServerState, dict[Connection, float]] = WeakKeyDictionary()


def make_room(state: ServerState, before: float) -> None:
    """Close the connections of a server that have been idle since before this time."""
    for connection, since in list(_IDLE.get(state, {}).items()):
        if since > before:
            break
        connection.give_way()
