"""Clients for tools/load.py: processes of their own, each with its server over pipes, that call on a fixed schedule."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perf import ERAS, Server, percentile

READY_S, STOPPED_S, HEAD_START_S = 60.0, 30.0, 0.1


class Clients:
    """`count` clients, ready but silent until they are told to ask, `rate` times a second in all. Use it with `with`.

    A protocol over pipes gives every client a server of its own, so there are as many servers. The clients are
    processes too: threads of one interpreter would share its lock and fall behind.
    """

    def __init__(self, count: int, home: Path, rate: float) -> None:
        self._rate = rate
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_client, args=(home, theirs), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Clients:
        for end in self._ends:
            _receive(end, READY_S)
        return self

    def __exit__(self, *error: object) -> None:
        for end in self._ends:
            end.send(None)
        for process in self._processes:
            process.join(STOPPED_S)

    def start(self, job_id: str) -> None:
        """Ask for this job's status, evenly spread, until stop()."""
        self._began = time.monotonic() + HEAD_START_S
        for number, end in enumerate(self._ends):
            end.send((job_id, self._began + number / self._rate, len(self._ends) / self._rate))

    def stop(self) -> dict[str, Any]:
        """End the asking; rate and latencies since start(). Raises RuntimeError if a client met an error."""
        ended = time.monotonic()
        for end in self._ends:
            end.send("stop")
        calls = list(itertools.chain.from_iterable(_receive(end, STOPPED_S) for end in self._ends))
        answered = sum(began + seconds <= ended for began, seconds in calls)
        late = [1e3 * seconds for _, seconds in calls]
        seen = {"calls": len(late), "calls_per_s": answered / (ended - self._began)}
        seen |= {"call_ms_p50": statistics.median(late), "call_ms_p99": percentile(late, 99), "call_ms_max": max(late)}
        return seen


def _receive(end: Connection, patience_s: float) -> list[tuple[float, float]]:
    if not end.poll(patience_s):
        raise RuntimeError(f"a client sent nothing for {patience_s:g} s")
    reply = end.recv()
    if isinstance(reply, str):
        raise RuntimeError(f"a client failed: {reply}")
    calls: list[tuple[float, float]] = reply
    return calls


def _client(home: Path, orders: Connection) -> None:
    """One client's process: say that it is ready, then take orders until there are no more."""
    try:
        with Server(ERAS[-1], home) as server:
            server.handshake()
            server.call("aisp_job_list", {"limit": 1})
            orders.send([])
            while (order := orders.recv()) is not None:
                job_id, start, step = order
                orders.send(_ask(server, job_id, start, step, orders))
    except (RuntimeError, OSError, EOFError) as error:
        orders.send(f"{type(error).__name__}: {error}")


def _ask(server: Server, job_id: str, start: float, step: float, orders: Connection) -> list[tuple[float, float]]:
    """A call every `step` seconds, or as fast as answers come when late; begin and seconds of each until told to stop.

    Begins are on the system-wide monotonic clock.
    """
    calls: list[tuple[float, float]] = []
    for due in itertools.count():
        if orders.poll(max(0.0, start + due * step - time.monotonic())):
            orders.recv()
            return calls
        began = time.monotonic()
        server.call("aisp_job_status", {"job_id": job_id})
        calls.append((began, time.monotonic() - began))
    raise AssertionError("count() never ends")
