"""Make sure that one process watches the cluster jobs of a store; any caller that looks at jobs starts it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from aisp_mcp.jobs.executors.local import MARK, spawn
from aisp_mcp.process import tree
from aisp_mcp.store.cluster import ClusterQueue
from aisp_mcp.store.connection import Database

LOCK = "cluster.lock"  # held by the watcher; its pid and start time are in it
WAKE = signal.SIGUSR1


def ensure(db: Database, home: Path, wake: bool = False) -> int | None:
    """Start a watcher if there are cluster jobs and no watcher lives; return its pid. wake: make a living one look.

    Starting two is harmless: the second finds the lock held and ends. Raises StoreError, OSError.
    """
    if not ClusterQueue(db).any_active():
        return None
    pid = watcher(home)
    if pid is not None:
        if wake:
            tree.kill([pid], WAKE)
        return None
    env = {name: value for name, value in os.environ.items() if name != MARK}
    return spawn(sys.executable, ("aisp_mcp.jobs.watcher",), {**env, "AISP_HOME": str(home)}, home / "supervisor.log")


def watcher(home: Path) -> int | None:
    """The pid of the living watcher; None if there is none."""
    try:
        fields = (home / LOCK).read_text("ascii").split()
    except OSError:
        return None
    here = len(fields) == 3 and fields[2] == tree.namespace()
    return int(fields[0]) if here and tree.alive(int(fields[0]), int(fields[1])) else None
