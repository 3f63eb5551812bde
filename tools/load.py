"""Ask a server hard while it measures, and see whether the measurement notices. Run: python tools/load.py

Two things are taken in turns, several times: a benchmark on a quiet server, and the same benchmark while 8 clients
together make 1,000 aisp_job_status calls a second, spread evenly. Reported: each side's median time per call of the
benchmark, their ratio against the run's own noise floor, the rate that was reached, latencies, and how long a cheap
call takes beside a busy tool. Run it on an idle machine with at least four cores; it uses a store of its own in a
temporary folder. Exit code 1 if the measurement changed by more than its noise floor, or the rate was not reached.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf import ERAS, Figure, Server, percentile, report

CLIENTS, RATE = 8, 1000.0
REACHED = 0.95  # of the rate, to count as reached
BUSY_BUDGET_MS = 10.0
# A tool of this script's own that is busy and hears nothing, found through AISP_TOOL_MODULES.
BUSY = """
import time
from aisp_mcp.context import Context
from aisp_mcp.model.base import Params, Record
from aisp_mcp.registry import READS, S, tool

class Nothing(Params):
    pass

class Done(Record):
    seconds: float

@tool(cli="load busy", effect=READS, cost=S)
def aisp_load_busy(p: Nothing, ctx: Context) -> Done:
    \"\"\"Compute for five seconds, in Python, without a pause.\"\"\"
    end = time.monotonic() + 5
    while time.monotonic() < end:
        sum(range(1000))
    return Done(seconds=5)
"""


@dataclass
class Load:
    """What the clients saw: seconds of each call, and how many calls were late."""

    seconds: list[float] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.seconds) / (self.ended - self.began)


def ask(server: Server, job_id: str, start: float, step: float, stop: threading.Event, load: Load) -> None:
    """One client: a call every `step` seconds, on time, or as fast as answers come."""
    for due in itertools.count():
        pause = start + due * step - time.monotonic()
        if stop.wait(max(0.0, pause)):
            return
        began = time.monotonic()
        server.call("aisp_job_status", {"job_id": job_id})
        load.seconds.append(time.monotonic() - began)


@contextmanager
def asking(home: Path, job_id: str) -> Iterator[Load]:
    """CLIENTS servers' worth of clients at RATE calls a second in all; over pipes each client has a server."""
    load, stop, start = Load(), threading.Event(), time.monotonic() + 0.2
    servers = [Server(ERAS[-1], home) for _ in range(CLIENTS)]
    step = CLIENTS / RATE
    threads = [
        threading.Thread(target=ask, args=(server, job_id, start + step * n / CLIENTS, step, stop, load))
        for n, server in enumerate(servers)
    ]
    for server in servers:
        server.handshake()
        server.call("aisp_job_status", {"job_id": job_id})
    load.began = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.ended = time.monotonic()
        stop.set()
        for thread in threads:
            thread.join()
        for server in servers:
            server.__exit__()


def benchmark(server: Server, target: str, preset: str) -> dict[str, Any]:
    """Measure one target to its end; its first ruling."""
    envelope = server.call("aisp_run_benchmarks", {"targets": [target], "preset": preset, "wait_s": 0, "confirm": True})
    job_id = envelope["job"]["job_id"]
    while True:
        waited = server.call("aisp_job_wait", {"job_ids": [job_id], "timeout_s": 45})["result"]
        answer = waited.get("answer")
        if answer is not None:
            if "error" in answer:
                raise RuntimeError(f"{target}: {answer['error']}")
            ruling: dict[str, Any] = answer["result"]["rulings"][0]
            return {**ruling, "job_id": job_id}


def disturbance(home: Path, target: str, preset: str, turns: int) -> Iterator[Figure]:
    """The benchmark, quiet and asked, in turns."""
    quiet, asked, floors, latencies, rates = [], [], [], [], []
    with Server(ERAS[-1], home) as server:
        server.handshake()
        known = benchmark(server, target, "quick")["job_id"]
        for _ in range(turns):
            one = benchmark(server, target, preset)
            quiet.append(one["time_s"][0])
            floors.append(one["noise_floor"] or 0.0)
            with asking(home, known) as load:
                asked.append(benchmark(server, target, preset)["time_s"][0])
            latencies += [1e3 * second for second in load.seconds]
            rates.append(load.rate)
    change = abs(statistics.median(asked) / statistics.median(quiet) - 1)
    floor = statistics.median(floors)
    yield Figure(f"{target}, quiet", statistics.median(quiet), "s", None, quiet)
    yield Figure(f"{target}, asked {RATE:g} times a second", statistics.median(asked), "s", None, asked)
    yield Figure("change of the median, relative", change, "", floor, [change])
    yield Figure("calls a second that were not made", max(0.0, RATE * REACHED - min(rates)), "", 0.0, rates)
    yield Figure("aisp_job_status p50", statistics.median(latencies), "ms", None, latencies)
    yield Figure("aisp_job_status p99", percentile(latencies, 99), "ms", None, latencies)


def beside_a_busy_tool(home: Path, calls: int) -> Iterator[Figure]:
    """How much longer a cheap call takes while a tool of the same server computes in Python."""
    (home / "aisp_load_probe.py").write_text(BUSY)
    extra = {"AISP_TOOL_MODULES": "aisp_load_probe", "PYTHONPATH": str(home)}
    with Server(ERAS[-1], home, **extra) as server:
        server.handshake()
        alone = [_cheap(server) for _ in range(calls)]
        busy = {"name": "aisp_load_busy", "arguments": {}, "_meta": server.meta}
        server.send({"jsonrpc": "2.0", "id": "busy", "method": "tools/call", "params": busy})
        time.sleep(0.2)
        beside = [_cheap(server) for _ in range(calls)]
    delay = max(0.0, statistics.median(beside) - statistics.median(alone))
    yield Figure("cheap call alone, p50", statistics.median(alone), "ms", None, alone)
    yield Figure("its delay beside a busy tool, p50", delay, "ms", BUSY_BUDGET_MS, beside)


def _cheap(server: Server) -> float:
    began = time.perf_counter()
    server.call("aisp_job_list", {"limit": 1})
    return 1e3 * (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure whether asking a server hard disturbs what it measures.")
    parser.add_argument("--target", default="ch07:row_sum", help="a benchmark target")
    parser.add_argument("--preset", default="default", help="quick, default or release")
    parser.add_argument("--turns", type=int, default=3, help="quiet and asked runs, in turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aisp-load-") as folder:
        figures = [
            *beside_a_busy_tool(Path(folder), 100),
            *disturbance(Path(folder), options.target, options.preset, options.turns),
        ]
    return report(figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
