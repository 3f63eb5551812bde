"""Dashboards for tools/load.py: a real `aisp dashboard`, pages that follow its events, and idle subscribers.

The pages are clients that do what the dashboard's script does. They share this script's process; what a browser takes
to draw them is not part of the figures.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from perf import Figure

PATIENCE_S, DUE_S = 60.0, 0.15  # DUE_S: app.js waits so long after an event before it fetches the page again
PAGES = ("/", "/jobs", "/verdicts", "/job?id={job}")
SUBSCRIBERS_MIB, SETTLE_S, IDLE_S = 60.0, 2.0, 10.0  # SUBSCRIBERS_MIB: of a thousand


class Dashboard:
    """`aisp dashboard` on a free port as a child process, entered once by its link. Use it with `with`."""

    def __init__(self, home: Path) -> None:
        argv = [sys.executable, "-m", "aisp_mcp.front.cli.main", "dashboard", "--port", "0"]
        env = {**os.environ, "AISP_HOME": str(home)}
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        assert self._process.stdout is not None
        link = re.search(r"http://127\.0\.0\.1:(\d+)(/login\?token=\S+)", self._process.stdout.readline())
        if link is None:
            raise RuntimeError("aisp dashboard printed no link")
        self.port = int(link[1])
        answer = self._get(link[2], {})
        self._headers = {"Cookie": str(answer.getheader("Set-Cookie")).partition(";")[0]}
        self.about = psutil.Process(self._process.pid)

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)

    def fetch(self, path: str) -> bytes:
        """A page. Raises RuntimeError."""
        answer = self._get(path, self._headers)
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return answer.read()

    def subscribe(self) -> socket.socket:
        """A stream of events whose first line has come."""
        wire = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        head = {"Host": f"127.0.0.1:{self.port}", "Accept": "text/event-stream", **self._headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        wire.sendall(f"GET /api/events HTTP/1.1\r\n{lines}\r\n".encode())
        received = b""
        while b": listening" not in received:
            part = wire.recv(4096)
            if not part:
                raise RuntimeError(f"the stream of events ended: {received[:200]!r}")
            received += part
        return wire

    def processor_s(self) -> float:
        """Processor time of the server so far."""
        used = self.about.cpu_times()
        return float(used.user + used.system)

    def _get(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        wire.request("GET", path, headers=headers)
        return wire.getresponse()


class Pages:
    """`count` open pages that do what app.js does: hold the events, and fetch the page again after a job changed."""

    def __init__(self, count: int, home: Path) -> None:
        self._dashboard = Dashboard(home)
        self._count = count

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._dashboard.__exit__()

    def start(self, job_id: str) -> None:
        """Open the pages, several of them on this job."""
        self._fetched, self._seen, self._failed = 0, 0, list[str]()
        self._wires = [self._dashboard.subscribe() for _ in range(self._count)]
        self._began, self._used = time.monotonic(), self._dashboard.processor_s()
        self._threads = [
            threading.Thread(
                target=self._follow, args=(wire, PAGES[number % len(PAGES)].format(job=job_id)), daemon=True
            )
            for number, wire in enumerate(self._wires)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict[str, Any]:
        """Close the pages; what was seen since start(). Raises RuntimeError if one of them met an error."""
        seconds, used = time.monotonic() - self._began, self._dashboard.processor_s() - self._used
        for wire in self._wires:
            wire.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if self._failed:
            raise RuntimeError(f"a page failed: {self._failed[0]}")
        seen = {"pages": self._count, "events": self._seen, "fetched": self._fetched}
        return {**seen, "server_processor_s": round(used, 3), "server_processor_share": used / seconds}

    def _follow(self, wire: socket.socket, path: str) -> None:
        try:
            with wire, wire.makefile("rb") as lines:
                self._load(path)
                for line in lines:
                    if line.startswith(b"data: "):
                        json.loads(line[6:])
                        self._seen += 1
                        time.sleep(DUE_S)
                        self._load(path)
        except (RuntimeError, OSError, ValueError) as error:
            self._failed.append(f"{path}: {type(error).__name__}: {error}")

    def _load(self, path: str) -> None:
        self._dashboard.fetch(path)
        self._fetched += 1


def subscribers(home: Path, count: int) -> Iterator[Figure]:
    """Memory and processor time that idle streams of events cost the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    with Dashboard(home) as dashboard:
        for path in ("/", "/jobs"):
            dashboard.fetch(path)
        dashboard.subscribe().close()
        time.sleep(SETTLE_S)
        before = dashboard.about.memory_info().rss
        wires = [dashboard.subscribe() for _ in range(count)]
        time.sleep(SETTLE_S)
        used, began = dashboard.processor_s(), time.monotonic()
        time.sleep(IDLE_S)
        share = (dashboard.processor_s() - used) / (time.monotonic() - began)
        grown = (dashboard.about.memory_info().rss - before) / 2**20
        for wire in wires:
            wire.close()
    yield Figure("resident memory of the server before", before / 2**20, "MiB", None, [before / 2**20])
    yield Figure(f"resident memory of {count} idle subscribers", grown, "MiB", SUBSCRIBERS_MIB * count / 1000, [grown])
    yield Figure("of a core, while they are idle", 100 * share, "%", None, [100 * share])
