"""Find a process that stands by for jobs (standby.py), or start one.

Its socket's name stands for everything that a process inherits when it starts. If any of it has changed, no process
listens under the new name, and the job starts from new interpreters, as it does if that process is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from aisp_mcp.jobs.executors.local import MARK
from aisp_mcp.process import python, sockets, tree

FOLDER = "standby"  # in the store
WARM = "warm"  # in the store: processes that have loaded libraries, and what jobs have asked for
IDLE_S = 300.0  # how long they wait for another job
SEND_S = 1.0
_NO_JOB = "-" * 24  # as long as any job's id, so that a fork can be marked with one
# Variables that may differ from job to job, and those that a shell changes from command to command.
_OF_ONE_JOB = frozenset((MARK, "TRACEPARENT", "TRACESTATE", "AISP_JOB_ASKABLE", "_", "PWD", "OLDPWD", "SHLVL"))


def keep(home: Path, env: Mapping[str, str], words: Sequence[str], folder: Path, seconds: float) -> int:
    """Start one for jobs with these variables; return its pid. It listens at once, and loads in the background.

    words: the tool and the modules to load. It ends when no job has come for that long, or the folder is removed.
    Raises OSError.
    """
    at = home / FOLDER
    at.mkdir(mode=0o700, exist_ok=True)
    path = at / f"{_name(sys.executable, env)}.{secrets.token_hex(4)}"
    with sockets.listening(path) as listener:
        argv = python.module("aisp_mcp.jobs.standby", str(path), str(folder), f"{seconds:g}", *words)
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, listener.fileno(), 0)]
        actions += [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (1, 2)]
        return os.posix_spawn(argv[0], argv, {**env, MARK: _NO_JOB}, file_actions=actions, setsid=True)


def ask(home: Path, job: str, tool: str) -> None:
    """Have the supervisor of this process's job keep a process that has loaded what this one has."""
    ours = [name for name in sys.modules if name.startswith("aisp_mcp.") and name != "aisp_mcp.server.worker"]
    with suppress(OSError):
        (home / WARM).mkdir(mode=0o700, exist_ok=True)
        (home / WARM / job).write_text(json.dumps([tool, *sorted(ours)]))


def keep_asked_for(home: Path, job: str) -> None:
    """Keep the processes that this job has asked for: one for jobs, and those with libraries that it has missed."""
    folder = home / WARM
    with suppress(OSError):
        words = json.loads((folder / job).read_text())
        (folder / job).unlink()
        (home / FOLDER).mkdir(mode=0o700, exist_ok=True)
        ours = _name(sys.executable, os.environ) + "."
        if not any(name.startswith(ours) for name in os.listdir(home / FOLDER)):
            keep(home, os.environ, words, folder, IDLE_S)
        if any(folder.glob("*.asked")):
            from aisp_mcp.judge import warm

            warm.start_asked_for(folder, IDLE_S)


def fork_supervisor(home: Path, row: Any, env: Mapping[str, str], log_file: Path) -> bool:
    """Have a supervisor of this job forked; False if no process with these variables listens."""
    try:
        names = os.listdir(home / FOLDER)
    except OSError:
        return False
    ours = _name(row["python"], env) + "." if names else ""
    request = json.dumps({"job": row["id"], "env": dict(env), "log": str(log_file)}).encode()
    return any(name.startswith(ours) and _sent(home / FOLDER / name, request) for name in names)


def _sent(path: Path, request: bytes) -> bool:
    with suppress(OSError), sockets.connected(path, SEND_S) or nullcontext() as channel:
        if channel:
            channel.sendall(request)
            return True
    return False


def _name(interpreter: str, env: Mapping[str, str]) -> str:
    """Name for processes that this one could start itself: same variables, limits, cores, namespace and code."""
    variables = sorted((name, value) for name, value in env.items() if name not in _OF_ONE_JOB)
    limits = [Path(f"/proc/self/{name}").read_text() for name in ("limits", "cgroup")]
    cores = [sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)]
    facts = [interpreter, variables, limits, cores, tree.namespace(), python.code_state()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
