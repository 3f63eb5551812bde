"""Wait for a pending answer without a thread."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.to_thread

from aisp_mcp.envelope import Envelope, Progress
from aisp_mcp.server import dispatch
from aisp_mcp.server.context import Context


async def _no_report(_: Progress | None) -> None:
    """Report no progress."""


async def follow(
    name: str,
    ctx: Context,
    pending: dispatch.Pending,
    report: Callable[[Progress | None], Awaitable[None]] = _no_report,
    limiter: anyio.CapacityLimiter | None = None,
) -> Envelope:
    """The answer as soon as there is one; its ticket when the caller's time limit has passed."""
    deadline = time.monotonic() + pending.deadline_s
    for pause in dispatch.pauses():
        timed_out = time.monotonic() >= deadline
        poll = partial(dispatch.guarded, name, ctx, pending.ticket if timed_out else pending.poll)
        answer = await anyio.to_thread.run_sync(poll, abandon_on_cancel=True, limiter=limiter)
        if answer is not None:
            return answer
        await report(pending.progress())
        with dispatch.supervisor(pending) as handle, anyio.move_on_after(min(pause, deadline - time.monotonic())):
            await (anyio.sleep_forever() if handle is None else anyio.wait_readable(handle))
    raise AssertionError("pauses() never ends")
