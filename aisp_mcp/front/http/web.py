"""The web server that all our applications run on. Does not import the protocol library.

It limits connections: at most MAX_IDLE idle ones, and a deadline for the head of each request. A connection is idle
until the head of a request is complete, and again once its response has been sent. Closing an idle connection does no
harm, so when there are too many the one idle longest is closed: a client that opens hundreds of connections and sends
nothing closes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import h11
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

CONNECTIONS, IDLE_S = 1024, 30
MAX_HEADERS = 16_384


class Web(uvicorn.Server):
    """uvicorn without its signal handling, which ignores SIGHUP and waits for threads."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


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


def configured(app: ASGIApp) -> uvicorn.Config:
    """Return the limits and headers that all our servers share."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,  # it would add only addresses, and query strings may hold secrets
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )


MAX_IDLE = 128
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
        if unread:  # rejected before its body was read: do not read the rest
            self._unset_keepalive_if_required()
            if self.transport.can_write_eof() and not self.transport.is_closing():
                self.transport.write_eof()
            self.transport.pause_reading()
            self.loop.call_later(LINGER_S, self.transport.abort)
        self._mark_idle()

    def _mark_idle(self) -> None:
        """Count this connection as idle, and close the longest idle ones beyond MAX_IDLE."""
        idle = self._idle()
        idle.pop(self, None)
        idle[self] = None
        while len(idle) > MAX_IDLE:
            longest = next(iter(idle))
            del idle[longest]
            longest.transport.abort()

    def _expect_head(self, begun: bool) -> None:
        """Start or cancel the deadline of a request's head; later bytes do not extend it."""
        if begun and self._head_due is None:
            self._head_due = self.loop.call_later(HEAD_S, self.transport.abort)
        elif not begun and self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _idle(self) -> dict[Connection, None]:
        """Idle connections of this server, longest idle first."""
        return _IDLE.setdefault(self.server_state, {})


_IDLE: WeakKeyDictionary[ServerState, dict[Connection, None]] = WeakKeyDictionary()
