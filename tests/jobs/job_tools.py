"""Tools that behave well and badly, for the workers that the tests start."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from pydantic import Field

from aisp_mcp.errors import Unavailable
from aisp_mcp.records import Record
from aisp_mcp.server.context import Context
from aisp_mcp.server.registry import RUNS, JobParams, JobSpec, S, tool

SPEC = JobSpec(timeout_s=60)


class Did(Record):
    """Report of a test tool on what it did."""

    text: str
    cwd: str = ""
    variable: str = ""
    stdin: str = ""
    tmp: str = ""


class WorkParams(JobParams):
    seconds: float = 0.0
    gate: str = Field(default="", description="Path of a file to wait for.")
    journal: str = Field(default="", description="Path of a file that gets a line at the start and at the end.")
    label: str = ""


def _note(path: str, text: str) -> None:
    if path:
        with open(path, "a") as file:
            file.write(text + "\n")


@tool(cli="test work", effect=RUNS, cost=S, job=SPEC)
def aisp_test_work(p: WorkParams, ctx: Context) -> Did:
    """Take some time, or wait for a file."""
    _note(p.journal, f"begin {p.label} {time.monotonic_ns()}")
    ctx.progress(1, 2, "half way")
    time.sleep(p.seconds)
    while p.gate and not Path(p.gate).exists():
        time.sleep(0.01)
    _note(p.journal, f"end {p.label} {time.monotonic_ns()}")
    variable = os.environ.get("AISP_TEST_VARIABLE", "")
    return Did(
        text=p.label, cwd=os.getcwd(), variable=variable, stdin=sys.stdin.read(), tmp=os.environ.get("TMPDIR", "")
    )


class DaemonParams(JobParams):
    pids: str
    hang: bool = True


@tool(cli="test daemon", effect=RUNS, cost=S, job=SPEC)
def aisp_test_daemon(p: DaemonParams, ctx: Context) -> Did:
    """Leave a grandchild in a session of its own that ignores polite signals."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(p.pids).write_text(f"{os.getpid()} {os.getppid()}")
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    while not Path(p.pids).exists():
        time.sleep(0.01)
    while p.hang:
        signal.pause()
    return Did(text="left a daemon")


class EndParams(JobParams):
    how: str


@tool(cli="test end", effect=RUNS, cost=S, job=SPEC)
def aisp_test_end(p: EndParams, ctx: Context) -> Did:
    """End in an unusual way."""
    if p.how == "segfault":
        ctypes.string_at(0)
    elif p.how == "exit0":
        os._exit(0)
    elif p.how == "exit7":
        os._exit(7)
    elif p.how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif p.how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif p.how == "refuse":
        raise Unavailable("NO_GPU", "No NVIDIA GPU was found.", "Run on a machine that has one.")
    elif p.how == "raise":
        raise RuntimeError("a bug")
    return Did(text=p.how)


class FloodParams(JobParams):
    megabytes: int


@tool(cli="test flood", effect=RUNS, cost=S, job=SPEC)
def aisp_test_flood(p: FloodParams, ctx: Context) -> Did:
    """Print a lot."""
    line = b"x" * 999_999 + b"\n"
    for _ in range(p.megabytes):
        os.write(1, line)
    os.write(1, b"the end\n")
    return Did(text="flooded")


class BallastParams(JobParams):
    kilobytes: int
    gate: str


@tool(cli="test ballast", effect=RUNS, cost=S, job=SPEC)
def aisp_test_ballast(p: BallastParams, ctx: Context) -> Did:
    """Return a large answer once a file exists."""
    while not Path(p.gate).exists():
        time.sleep(0.01)
    return Did(text="b" * p.kilobytes * 1000)


CALLS: list[str] = []


@tool(cli="test calls", effect=RUNS, cost=S, job=SPEC)
def aisp_test_calls(p: WorkParams, ctx: Context) -> Did:
    """Count the calls in this process and in those it was forked from; name the command of its supervisor."""
    CALLS.append(p.label)
    command = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
    return Did(text=f"{len(CALLS)} {command[3]}", variable=os.environ["AISP_JOB_ID"], tmp=os.environ["TMPDIR"])
