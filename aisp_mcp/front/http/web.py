"""The web server that all our applications run on. Does not import the protocol library."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from aisp_mcp.front.http.wire import Connection

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
