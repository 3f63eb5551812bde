"""Start supervisors for jobs that may run. Any process may call this at any time: starting twice is harmless."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from aisp_mcp.jobs import endings, ready
from aisp_mcp.jobs.environment import passed_on
from aisp_mcp.jobs.executors.local import MARK, Local
from aisp_mcp.store.queue import Queue
from aisp_mcp.store.records.job_state import JobState

MAX_SPAWNS = 5


def start_ready(queue: Queue, slots: int, home: Path) -> list[int]:
    """Start a supervisor for each job whose turn it is; returns the pids of child processes. Raises StoreError."""
    pids = []
    for row in queue.take_spawns(slots):
        env = {**variables(json.loads(row["env"] or "{}"), home), MARK: row["id"]}
        log = home / "supervisor.log"
        try:
            if row["spawns"] > MAX_SPAWNS:
                raise OSError(f"{MAX_SPAWNS} attempts did not start a supervisor")
            if row["spawns"] > 1 or not ready.fork_supervisor(home, row, env, log):  # once: it may hang
                pids.append(int(Local(env, log).submit(row) or 0))
        except OSError as error:
            message = f"Cannot start {row['python']}: {error}."
            answer = endings.failure(row["tool"], row["id"], "NOT_STARTED", message, None)
            queue.end(row["id"], JobState.FAILED, reason=f"NOT_STARTED: {message}", envelope=answer)
    return pids


def variables(stored: Mapping[str, str], home: Path) -> dict[str, str]:
    """The environment of a job: the variables stored with it, and all others of this process."""
    return {**passed_on(os.environ), **stored, "AISP_HOME": str(home)}


def reap(pids: set[int]) -> None:
    """Reap supervisors that have ended, so that they do not remain zombies of a long-lived server."""
    for pid in list(pids):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        pids.discard(pid)
