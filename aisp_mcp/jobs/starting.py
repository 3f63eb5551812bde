"""Start supervisors for whatever may run. Anyone may call this at any time: starting twice is harmless."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from aisp_mcp.jobs import endings
from aisp_mcp.model.job_state import JobState
from aisp_mcp.store.queue import Queue

MAX_SPAWNS = 5
MARK = "AISP_JOB_ID"  # in the environment of every process of a job
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def remembered(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that may be written to disk: all but what looks like a secret."""
    return {name: value for name, value in environ.items() if not _SECRET.search(name)}


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The other part; it comes from whoever starts the supervisor and is never written down."""
    return {name: value for name, value in environ.items() if _SECRET.search(name)}


def start_ready(queue: Queue, places: int, home: Path) -> list[int]:
    """Start a supervisor for each job whose turn it is; returns their pids. Raises StoreError."""
    pids = []
    for row in queue.take_spawns(places):
        env = {**secrets_of(os.environ), **json.loads(row["env"] or "{}"), MARK: row["id"], "AISP_HOME": str(home)}
        try:
            if row["spawns"] > MAX_SPAWNS:
                raise OSError(f"{MAX_SPAWNS} tries gave no supervisor that took the job")
            pids.append(_spawn(row["python"], row["id"], env))
        except OSError as error:
            message = f"Cannot start {row['python']}: {error}."
            answer = endings.failure(row["tool"], row["id"], "NOT_STARTED", message, None)
            queue.end(row["id"], JobState.FAILED, reason=f"NOT_STARTED: {message}", envelope=answer)
    return pids


def _spawn(python: str, job_id: str, env: Mapping[str, str]) -> int:
    """A process in its own session; errors go to the starter's standard error, and to nobody once that is gone."""
    argv = [python, "-m", "aisp_mcp.jobs.supervisor", job_id]
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    return os.posix_spawn(python, argv, env, file_actions=nothing, setsid=True)


def reap(pids: set[int]) -> None:
    """Collect supervisors that have ended, so that they do not stay as zombies of a long-lived server."""
    for pid in list(pids):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        pids.discard(pid)
