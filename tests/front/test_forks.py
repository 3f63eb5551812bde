"""A fork in place of a new interpreter (forks.py) is like one, and starts only where it can be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forks
import pytest

FACTS = """
import json, os, signal, sys
proc = [open(f"/proc/self/{name}").read().rstrip("\\0") for name in ("cmdline", "environ")]
print(json.dumps({
    "proc": proc, "environ": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv, "path": sys.path, "main": __name__,
    "descriptors": sorted(os.listdir("/proc/self/fd")), "leads": os.getsid(0) == os.getpid(), "input": sys.stdin.read(),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
    "buffered": sys.stdout.line_buffering, "umask": os.umask(0), "limits": open("/proc/self/limits").read(),
}))
print(os.getppid(), file=sys.stderr)
"""


@pytest.mark.parametrize("session", [False, True])
def test_a_fork_is_like_a_new_interpreter(tmp_path: Path, session: bool) -> None:
    argv = [sys.executable, "-c", FACTS, "a", "ü b"]
    env = {**os.environ, "MARK": "ü=\n1", "PYTHONPATH": f"{tmp_path}:relative"}
    how: dict[str, Any] = {"cwd": tmp_path, "env": env, "input": "typed", "start_new_session": session}
    new, fork = (run(argv, capture_output=True, text=True, **how) for run in (subprocess.run, forks.run))
    assert json.loads(fork.stdout) == json.loads(new.stdout)
    assert (int(new.stderr) == os.getpid(), int(fork.stderr) == os.getpid()) == (True, False)


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("raise SystemExit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise SystemExit(3)", 3, ""),
        (f"import os; os.kill(os.getpid(), {signal.SIGKILL:d})", -signal.SIGKILL, ""),
    ],
)
def test_how_it_ends_is_told(code: str, status: int, words: str) -> None:
    done = forks.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == status
    assert words in done.stderr


def test_what_an_interpreter_reads_when_it_starts_makes_a_new_one() -> None:
    argv = [sys.executable, "-c", "import os; print(os.getppid())"]
    done = forks.run(argv, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    assert int(done.stdout) == os.getpid()


def test_one_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run([sys.executable, "-c", "import signal; signal.pause()"], timeout=0.1)
