"""Run a driver call that may never return, and go on without it.

A hung driver call cannot be interrupted from user space, so it runs on a daemon thread and the caller stops waiting. A
thread rather than a child process: a warm reading takes about a millisecond, while starting a child and opening NVML
again takes 100 ms here and seconds on a machine without persistence mode. The disadvantage is that a crash inside the
driver library would end this process; a hang, the usual failure of drivers, does not. While one call hangs, no other is
started: later ones are refused almost at once instead of being queued.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_AGAIN_S = 0.1  # a call waits this long for an earlier one that is already overdue


class Hung(Exception):
    """The call did not return in time. `since_s`: how long it has been running."""

    def __init__(self, since_s: float) -> None:
        super().__init__(f"no answer within {since_s:.1f} s")
        self.since_s = since_s


@dataclass
class _Task:
    """One call in progress."""

    fn: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.monotonic)
    value: Any = None
    error: BaseException | None = None


class CallLane:
    """One daemon thread that runs calls one after the other; it starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._current: _Task | None = None

    def call(self, fn: Callable[[], Any], deadline_s: float) -> Any:
        """fn()'s value. Raises Hung after deadline_s, almost at once while an earlier call hangs, or what fn raised."""
        task = _Task(fn)
        if not self._lock.acquire(timeout=deadline_s):
            raise Hung(deadline_s)
        try:
            before = self._current
            if before is not None and not before.done.wait(min(deadline_s, _AGAIN_S)):
                raise Hung(time.monotonic() - before.started)
            self._start()
            self._queue.put(task)
            finished = task.done.wait(deadline_s)
            self._current = None if finished else task
        finally:
            self._lock.release()
        if not finished:
            raise Hung(time.monotonic() - task.started)
        if task.error is not None:
            raise task.error
        return task.value

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            task = self._queue.get()
            try:
                task.value = task.fn()
            except BaseException as error:
                task.error = error
            task.done.set()
