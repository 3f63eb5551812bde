"""Server-sent events about changed jobs. One reader of the store serves all subscribers of a process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream
from starlette.requests import Request
from starlette.responses import StreamingResponse

from aisp_mcp.server.context import Context

log = logging.getLogger("aisp")
POLL_S, KEEP_ALIVE_S = 0.25, 15.0
HISTORY = 512  # past events that a client can still get with Last-Event-ID
RECENT = 50  # newest jobs that are watched
BUFFER = 64  # events that a slow reader may lag behind before its stream ends; it can resume with Last-Event-ID

Event = tuple[int, str, dict[str, Any]]  # id, principal, data


class EventFeed:
    """Events about changes in the store, which is polled only while there are listeners."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._events: deque[Event] = deque(maxlen=HISTORY)
        self._last = 0
        self._seen: dict[str, dict[str, Any]] | None = None
        self._listeners: set[MemoryObjectSendStream[Event]] = set()
        self._polling = anyio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    def since(self, last: int) -> list[Event]:
        """Return the stored events after that id."""
        return [event for event in self._events if event[0] > last]

    async def begin(self) -> None:
        """Read the current state, so that every change from now on becomes an event."""
        if self._seen is None:
            await self._poll()

    async def listen(self, last: int | None) -> AsyncIterator[Event | None]:
        """Yield events as they occur, and None as a keep-alive. Ends if this reader lags too far behind."""
        send, receive = anyio.create_memory_object_stream[Event](BUFFER)
        with send, receive:
            missed = self.since(last) if last is not None else []
            self._listeners.add(send)
            self._watch()
            try:
                for event in missed:
                    yield event
                while True:
                    new: Event | None = None
                    with anyio.move_on_after(KEEP_ALIVE_S):
                        new = await receive.receive()
                    yield new
            except anyio.EndOfStream:
                return
            finally:
                self._listeners.discard(send)

    def _watch(self) -> None:
        """Poll for all listeners until there are none; an error ends their streams."""

        async def work() -> None:
            try:
                while self._listeners:
                    await anyio.sleep(POLL_S)
                    await self._poll()
            finally:
                for listener in list(self._listeners):
                    self._drop(listener)

        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(work())
            self._watcher.add_done_callback(_report)

    def _drop(self, listener: MemoryObjectSendStream[Event]) -> None:
        """End a stream after the events in its buffer."""
        self._listeners.discard(listener)
        listener.close()

    async def _poll(self) -> None:
        """Compare the newest jobs with the last state, and publish the changes; only one poll runs at a time."""
        try:
            self._polling.acquire_nowait()
        except anyio.WouldBlock:
            return
        try:
            now = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        finally:
            self._polling.release()
        before, self._seen = self._seen, now
        for job_id, data in now.items():
            if before is not None and before.get(job_id) != data:
                self._publish(data)

    def _read(self) -> dict[str, dict[str, Any]]:
        jobs, _ = self._ctx.store.list_jobs(limit=RECENT)
        fields = {"id", "tool", "state", "progress", "position", "principal", "reason"}
        return {job.id: job.model_dump(mode="json", include=fields, exclude_none=True) for job in reversed(jobs)}

    def _publish(self, data: dict[str, Any]) -> None:
        self._last += 1
        event = (self._last, data["principal"], {key: value for key, value in data.items() if key != "principal"})
        self._events.append(event)
        for listener in list(self._listeners):
            try:
                listener.send_nowait(event)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                self._drop(listener)


def _report(watcher: asyncio.Task[None]) -> None:
    if not watcher.cancelled() and (error := watcher.exception()) is not None:
        log.warning("events: the store could not be read: %s", error)


async def stream(request: Request, ctx: Context, feed: EventFeed) -> StreamingResponse:
    """GET /api/events: `event: job` with id, state and progress. Last-Event-ID resumes after a lost connection."""
    header = request.headers.get("last-event-id", "")
    last = int(header) if header.isdecimal() else None

    await feed.begin()

    async def lines() -> AsyncIterator[str]:
        yield ": listening\n\n"
        async for event in feed.listen(last):
            if event is None:
                yield ": alive\n\n"
            elif ctx.sees in (None, event[1]):
                yield f"id: {event[0]}\nevent: job\ndata: {json.dumps(event[2], separators=(',', ':'))}\n\n"

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)
