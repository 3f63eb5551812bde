"""Many idle streams of events: what each costs the server, and that all of them hear."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dashboard_support import START, Dashboard

from aisp_mcp.store.database import Store
from aisp_mcp.store.records.job import Job, JobState

STEP, MAX_KIB_EACH = 100, 60.0


@pytest.fixture
def shown(home: Path) -> Iterator[Dashboard]:
    Store(home).close()
    dashboard = Dashboard()
    yield dashboard
    dashboard.stop()


def subscribe(port: int, cookie: str) -> socket.socket:
    """A stream whose first line has come."""
    wire = socket.create_connection(("127.0.0.1", port), timeout=50)
    wire.sendall(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    until(wire, b": listening")
    return wire


def until(wire: socket.socket, words: bytes) -> None:
    received = b""
    while words not in received:
        part = wire.recv(4096)
        assert part, received
        received += part


def test_a_hundred_subscribers_are_cheap_and_all_hear(home: Path, shown: Dashboard) -> None:
    with shown.client() as web:
        port, cookie = web.base_url.port, f"{next(iter(web.cookies))}={next(iter(web.cookies.values()))}"
        assert port
    server = psutil.Process(shown.process.pid)
    wires = [subscribe(port, cookie) for _ in range(STEP)]  # the cost of the very first is not part of the figure
    before, threads = server.memory_info().rss, server.num_threads()
    wires += [subscribe(port, cookie) for _ in range(STEP)]
    assert (server.memory_info().rss - before) / 2**10 / STEP <= MAX_KIB_EACH
    assert server.num_threads() <= threads + 2
    with Store(home) as store:
        shared = {"params": {}, "state": JobState.QUEUED, "timeout_s": 1, "created_at": START, "run_dir": "x"}
        store.insert_job(Job(id="j_heard", tool="aisp_demo_count", **shared), python="", cwd="", env={})
    for wire in wires:
        until(wire, b"j_heard")
        wire.close()
