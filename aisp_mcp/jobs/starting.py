"""Keep a queue going: start supervisors and watchers, and clean up after supervisors that vanished.

Any process that looks at jobs may call these at any time: starting twice is harmless, and ending twice impossible.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError, StoreError
from aisp_mcp.jobs import endings, ready
from aisp_mcp.jobs.environment import passed_on
from aisp_mcp.jobs.executors.local import MARK, Local, spawn, supervised
from aisp_mcp.process import tree
from aisp_mcp.store.cluster import executors_with_jobs
from aisp_mcp.store.connection import Database
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


WAKE = signal.SIGUSR1


def ensure_watchers(db: Database, home: Path, wake: bool = False) -> list[int]:
    """Start a watcher for each executor with jobs that has none; return their pids. wake: make living ones look.

    Starting two is harmless: the second finds the lock held and ends. Raises StoreError, OSError.
    """
    started = []
    for executor in executors_with_jobs(db):
        pid = living_watcher(home, executor)
        if pid is None:
            env = {**{name: value for name, value in os.environ.items() if name != MARK}, "AISP_HOME": str(home)}
            words = ("aisp_mcp.jobs.watcher", executor)
            started.append(spawn(sys.executable, words, env, home / "supervisor.log"))
        elif wake:
            tree.kill([pid], WAKE)
    return started


def watcher_lock(home: Path, executor: str) -> Path:
    """The file that the watcher of an executor holds; its pid and start time are in it."""
    return home / f"watcher-{hashlib.sha256(executor.encode()).hexdigest()[:12]}.lock"


def living_watcher(home: Path, executor: str) -> int | None:
    """The pid of the living watcher of an executor; None if there is none."""
    try:
        fields = watcher_lock(home, executor).read_text("ascii").split()
    except OSError:
        return None
    here = len(fields) == 3 and fields[2] == tree.namespace()
    return int(fields[0]) if here and tree.alive(int(fields[0]), int(fields[1])) else None


def scratch_of(row: Any) -> Path:
    """The job's own TMPDIR: short, because sockets are created there, and removed when the job has ended.

    It is under the TMPDIR that the job was submitted with, so that another process also finds it.
    """
    return Path(json.loads(row["env"] or "{}").get("TMPDIR") or "/tmp") / f"aisp-{row['id']}"


def reconcile(queue: Queue) -> int:
    """End every row whose supervisor is gone; returns how many. Raises StoreError."""
    return sum(_take_over(queue, row) for row in queue.owned() if not supervised(row))


def _take_over(queue: Queue, seen: Any) -> bool:
    """End a job whose supervisor is gone: with the answer if the worker has written it, else as lost, unless another
    worker may try it. Processes end first, then the row.
    """
    if seen["namespace"] == tree.namespace():
        tree.sweep_marked(MARK, seen["id"])
    shutil.rmtree(scratch_of(seen), ignore_errors=True)
    with queue.db.transaction():
        row = queue.row(seen["id"])
        if row is None or JobState(row["state"]).terminal or supervised(row):
            return False  # ended, or claimed anew, while we looked
        try:
            _end(queue, row)
        except StoreError as error:
            if error.code == "STORE_FULL":
                queue.db.free_reserve()
            raise
        except AispError:
            return False
        return True


def _end(queue: Queue, row: Any) -> None:
    answer = endings.answer_of(row)
    if answer is not None:
        queue.end(row["id"], endings.state_of(answer), reason=endings.sentence(answer), envelope=answer)
        return
    if queue.give_again(row["id"]):
        return
    message = f"{row['tool']} vanished: its supervisor (pid {row['pid']}) is gone and it left no answer."
    answer = endings.failure(row["tool"], row["id"], "LOST", message, row["started_at"])
    queue.end(row["id"], JobState.LOST, reason=f"LOST: {message}", envelope=answer)
    with contextlib.suppress(OSError):
        (Path(row["run_dir"]) / "envelope.json").write_text(answer, "utf-8")
