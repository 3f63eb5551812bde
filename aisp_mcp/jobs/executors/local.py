"""Jobs on this machine: a supervisor process for each."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.jobs import log
from aisp_mcp.jobs.executors.base import ExecutorState
from aisp_mcp.process import tree
from aisp_mcp.process.python import module

MARK = "AISP_JOB_ID"  # in the environment of every process of a job
LOG_BYTES = 1 << 20
STALE_S = 30.0  # an invisible supervisor (other machine or container) that is silent for this long counts as gone


class Local:
    """env: the environment of a job to start, by its row; errors of its supervisor go to `log`."""

    def __init__(self, env: Mapping[str, str] | None = None, log_file: Path = Path(os.devnull)) -> None:
        self.env = env or {}
        self.log_file = log_file

    def submit(self, row: Any) -> str | None:
        """Start a supervisor; returns its pid. It takes the job when its turn comes. Raises OSError."""
        return str(spawn(row["python"], ("aisp_mcp.jobs.supervisor", row["id"]), self.env, self.log_file))

    def poll(self, rows: list[Any]) -> dict[str, ExecutorState]:
        """Running rows are reported as running, or as unknown if their supervisor is gone."""
        return {row["id"]: ExecutorState("running" if supervised(row) else "unknown") for row in rows}

    def cancel(self, row: Any) -> bool:
        """Signal its supervisor. False if it is gone or not visible from here."""
        if row["namespace"] != tree.namespace() or not tree.alive(row["pid"], row["pid_start"]):
            return False
        tree.kill([row["pid"]], signal.SIGTERM)
        return True

    def tail(self, row: Any, limit: int) -> str:
        return log.tail(Path(row["run_dir"]), limit)


def supervised(row: Any) -> bool:
    """Return True if the process that owns a row lives: by pid and start time here, elsewhere by its heartbeat."""
    if row["namespace"] == tree.namespace():
        lives = tree.alive(row["pid"], row["pid_start"])
        if lives and tree.stopped(row["pid"]):
            tree.kill([row["pid"]], signal.SIGCONT)  # a program without isolation can stop it, and nothing may
        return lives
    try:
        beat = (Path(row["run_dir"]) / "heartbeat").stat().st_mtime
    except OSError:
        beat = row["started_at"]
    return beat is None or abs(time.time() - max(beat, row["started_at"] or beat)) < STALE_S


def spawn(python: str, arguments: tuple[str, ...], env: Mapping[str, str], log_file: Path) -> int:
    """Start a module in its own session; it inherits no descriptors, so readers of our output do not wait for it.

    log_file starts anew when it has grown beyond LOG_BYTES. Raises OSError.
    """
    with contextlib.suppress(OSError):
        if log_file.stat().st_size > LOG_BYTES:
            log_file.unlink()
    actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    actions.append((os.POSIX_SPAWN_OPEN, 2, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return os.posix_spawn(python, module(*arguments, python=python), env, file_actions=actions, setsid=True)
