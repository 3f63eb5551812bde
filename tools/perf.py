"""Measure what a user feels: start-up, memory, latency, the price of a job. Run: make perf, or python tools/perf.py

Drives the installed console scripts from outside: the server over stdio with JSON-RPC written by hand, the CLI as a
process. Every figure is a median (or the percentile in its name) over fresh samples, next to its budget. Run it on
an idle machine; it uses a store of its own in a temporary folder. Exit code 1 if a budget is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

SCRIPTS = Path(sys.executable).parent
# The installed script; from a checkout that is only on the path, the module that it runs.
COMMAND = [str(SCRIPTS / "aisp-mcp")] if (SCRIPTS / "aisp-mcp").exists() else [sys.executable, "-m", "aisp_mcp"]
ERAS = ("2025-11-25", "2026-07-28")
META = "io.modelcontextprotocol/"
JOB_S = 1.0
# A tool of this script's own, found through AISP_TOOL_MODULES: a job whose work takes a known time.
NAP = f"""
import time
from aisp_mcp.server.context import Context
from aisp_mcp.records import Record
from aisp_mcp.server.registry import READS, S, JobParams, JobSpec, tool

class Nap(Record):
    slept_s: float

@tool(cli="perf nap", effect=READS, cost=S, job=JobSpec(timeout_s=60))
def aisp_perf_nap(p: JobParams, ctx: Context) -> Nap:
    \"\"\"Sleep for a known time.\"\"\"
    time.sleep({JOB_S})
    return Nap(slept_s={JOB_S})
"""

# The smallest server of the protocol's library.
ONE_TOOL = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("one tool")

@server.tool()
def hello(name: str) -> str:
    return "hello " + name

server.run()
"""


class Figure(NamedTuple):
    """One measured value. samples: all of them, in the figure's unit, in the order they were taken."""

    name: str
    value: float
    unit: str
    budget: float | None
    samples: list[float]

    @property
    def passed(self) -> bool:
        return self.budget is None or self.value <= self.budget


class Server:
    """The real server as a child process, spoken to in one protocol era."""

    def __init__(self, era: str, home: Path, command: Sequence[str] = COMMAND, **environment: str) -> None:
        self.era = era
        self.skipped: list[dict[str, Any]] = []  # answers to other requests, met while waiting for one
        self._ids = itertools.count(1)
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "AISP_HOME": str(home), **environment},
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=10)

    def handshake(self) -> None:
        """Messages that the era needs before the first request: nothing in the newer one."""
        if self.era < "2026":
            client = {"protocolVersion": self.era, "capabilities": {}, "clientInfo": {"name": "perf", "version": "1"}}
            self.request("initialize", client)
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and read up to its answer. Raises RuntimeError with the server's error."""
        number = next(self._ids)
        content = dict(params or {})
        if self.era >= "2026":
            content["_meta"] = self.meta
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": content})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.skipped.append(answer)
        raise RuntimeError(f"{method}: the server ended without an answer")

    def call(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """One tool call; the envelope. Raises RuntimeError when it is an error."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments or {}})
        envelope: dict[str, Any] = result["structuredContent"]
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {envelope['error']}")
        return envelope

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata of every request of the newer era."""
        return {META + "protocolVersion": self.era, META + "clientCapabilities": {}}

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def timed(action: Callable[[], object]) -> float:
    """Wall time of one call in seconds."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def percentile(samples: Sequence[float], percent: int) -> float:
    """The value that `percent` of the samples do not exceed."""
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def start_up(home: Path, repeats: int) -> Iterator[Figure]:
    """Spawn to the first tools/list answer, and resident memory after it, in both protocol eras."""
    for era in ERAS:
        seconds, megabytes = [], []
        for _ in range(repeats):
            with Server(era, home) as server:
                server.handshake()
                server.request("tools/list")
                seconds.append(time.perf_counter() - server.started)
                megabytes.append(psutil.Process(server.process.pid).memory_info().rss / 2**20)
        yield Figure(f"spawn to first tools/list answer, {era}", statistics.median(seconds), "s", 0.9, seconds)
        yield Figure(f"resident memory after it, {era}", statistics.median(megabytes), "MiB", 85, megabytes)


def beside_another(home: Path, repeats: int) -> Iterator[Figure]:
    """Processor time from the start to the first tools/list answer, relative to a server of one tool, in pairs."""
    script = home / "one_tool.py"
    script.write_text(ONE_TOOL)
    other = [sys.executable, str(script)]
    ratios = []
    for turn in range(repeats):
        order = (COMMAND, other) if turn % 2 else (other, COMMAND)
        seconds = {tuple(command): processor_seconds(command, home) for command in order}
        ratios.append(seconds[tuple(COMMAND)] / seconds[tuple(other)])
    yield Figure("start beside a server of one tool", statistics.median(ratios), "x", 1.25, ratios)


def processor_seconds(command: Sequence[str], home: Path) -> float:
    """Processor time of a fresh server when it has answered tools/list."""
    with Server(ERAS[0], home, command) as server:
        server.handshake()
        server.request("tools/list")
        times = psutil.Process(server.process.pid).cpu_times()
        return times.user + times.system


def command_line(home: Path, repeats: int) -> Iterator[Figure]:
    """`aisp --help` by the clock, and the modules it loads."""
    env = {**os.environ, "AISP_HOME": str(home)}
    command = [str(SCRIPTS / "aisp"), "--help"]
    seconds = [
        timed(lambda: subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)) for _ in range(repeats)
    ]
    yield Figure("aisp --help", statistics.median(seconds), "s", 0.2, seconds)
    loaded = modules_of_help(env)
    yield Figure("modules loaded by aisp --help", len(loaded), "", None, [len(loaded)])
    heavy = sorted(loaded & {"mcp", "torch", "triton", "numpy"})
    yield Figure("of those: mcp, torch, triton, numpy", len(heavy), "", 0, [len(heavy)])


def modules_of_help(env: dict[str, str]) -> set[str]:
    """Top-level and nested module names present when `aisp --help` ends."""
    script = (
        "import atexit, sys, runpy; sys.argv = sys.argv[1:];"
        "atexit.register(lambda: print('\\n'.join(sys.modules), file=sys.stderr));"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", script, str(SCRIPTS / "aisp"), "--help"]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def latency(home: Path, calls: int) -> Iterator[Figure]:
    """Warm calls on a running server, from the client's side of the pipe."""
    with Server(ERAS[-1], home) as server:
        server.handshake()
        for name, tool, budgets in (
            ("cheap call (aisp_job_list)", "aisp_job_list", (2.0, None)),
            ("aisp_status", "aisp_status", (50.0, None)),
            ("aisp_benchmark_targets", "aisp_benchmark_targets", (100.0, None)),
        ):
            for _ in range(5):
                server.call(tool)
            milliseconds = [1e3 * timed(lambda tool=tool: server.call(tool)) for _ in range(calls)]  # type: ignore[misc]
            yield Figure(f"{name} p50", statistics.median(milliseconds), "ms", budgets[0], milliseconds)
            yield Figure(f"{name} p95", percentile(milliseconds, 95), "ms", budgets[1], milliseconds)


def job_price(home: Path, repeats: int) -> Iterator[Figure]:
    """Cost of a job of one second beyond that second and the start of a Python interpreter, from call to answer."""
    interpreter = [timed(lambda: subprocess.run([sys.executable, "-c", ""], check=True)) for _ in range(repeats)]
    start = statistics.median(interpreter)
    yield Figure("start of the Python interpreter", start, "s", None, interpreter)
    (home / "aisp_perf_probe.py").write_text(NAP)
    extra = {"AISP_TOOL_MODULES": "aisp_perf_probe", "PYTHONPATH": str(home)}
    with Server(ERAS[-1], home, **extra) as server:
        server.handshake()
        seconds = [timed(lambda: server.call("aisp_perf_nap", {"wait_s": 45})) for _ in range(repeats)]
    overheads = [second - JOB_S - start for second in seconds]
    yield Figure(
        "job of 1 s, beyond that and the interpreter's start", statistics.median(overheads), "s", 0.3, overheads
    )


def table(figures: Sequence[Figure]) -> str:
    """Markdown, as it stands in docs/performance.md."""
    lines = ["| what | measured | budget | samples |", "| --- | ---: | ---: | ---: |"]
    for figure in figures:
        budget = "" if figure.budget is None else f"≤ {figure.budget:g} {figure.unit}".rstrip()
        mark = "" if figure.passed else " **missed**"
        measured = f"{figure.value:.3g} {figure.unit}".rstrip()
        lines.append(f"| {figure.name} | {measured}{mark} | {budget} | {len(figure.samples)} |")
    return "\n".join(lines)


def machine() -> str:
    """Machine of the measurement, in one line."""
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    return f"{cores} cores, {memory:.0f} GiB, {platform.platform(terse=True)}, Python {platform.python_version()}"


def report(figures: list[Figure], samples: Path | None) -> int:
    """Print the table, keep every sample in a file if one is named; the exit code, 1 for a missed budget."""
    where = f"{time.strftime('%Y-%m-%d')}, {machine()}, load {os.getloadavg()[0]:.1f}"
    print(f"{where}\n\n{table(figures)}")
    if samples:
        samples.write_text(json.dumps({"where": where, "figures": [f._asdict() for f in figures]}, indent=1))
    return 0 if all(figure.passed for figure in figures) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure start-up, memory, latency and the price of a job.")
    parser.add_argument("--repeats", type=int, default=10, help="fresh processes per figure")
    parser.add_argument("--calls", type=int, default=200, help="calls per latency figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aisp-perf-") as folder:
        home = Path(folder)
        parts = (
            start_up(home, options.repeats),
            beside_another(home, options.repeats),
            command_line(home, options.repeats),
            latency(home, options.calls),
            job_price(home, options.repeats),
        )
        figures = list(itertools.chain.from_iterable(parts))
    return report(figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
