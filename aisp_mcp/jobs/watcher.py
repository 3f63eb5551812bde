"""python -m aisp_mcp.jobs.watcher EXECUTOR: submit, follow and end all jobs of one store that this executor runs.

One process for all jobs, so that a cluster is queried once a second and not once per job; one per executor, so that one
that does not answer holds up no other. All its state is in the rows, the run folders and the executor. If it is killed,
the next process that looks at jobs starts it again. A job ends with the answer that its node left, or as the executor
reports its end if there is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError, StoreError
from aisp_mcp.jobs import endings
from aisp_mcp.jobs.executors import handover
from aisp_mcp.jobs.executors.base import Executor, ExecutorState
from aisp_mcp.jobs.executors.choice import elsewhere
from aisp_mcp.jobs.starting import WAKE, watcher_lock
from aisp_mcp.process import tree
from aisp_mcp.store.cluster import ClusterQueue, take_rows
from aisp_mcp.store.connection import Database
from aisp_mcp.store.records.job_state import JobState

CALM_AFTER_S, CALM_S = 60.0, 5.0  # without changes for a minute, states are asked for less often; files are still read
FORGOTTEN_S = 60.0  # a job may be unknown to a responding executor this long
CANCEL_AGAIN_S = 5.0
SUBMITTING_S = 1.0  # time for submissions in one round, so that the others' states stay fresh


class Watcher:
    """name: of the executor in the rows. settle_s, grace_s: other than the executor's own."""

    def __init__(
        self, db: Database, name: str, executor: Executor, settle_s: float | None = None, grace_s: float | None = None
    ) -> None:
        self.cluster = ClusterQueue(db, name)
        self.executor = executor
        self.settle_s = executor.settle_s if settle_s is None else settle_s
        self.grace_s = executor.grace_s if grace_s is None else grace_s
        self._since: dict[tuple[str, str], float] = {}
        self._changed = self._asked = time.monotonic()
        self._asked -= CALM_S

    def look(self) -> bool:
        """Check all active jobs once. Returns True if any is left. Raises StoreError."""
        rows = [row for row in self.cluster.active() if not self._from_files(row)]
        known = [row for row in rows if row["spawns"]]  # the first submission does not wait for an answer about it
        seen = self.executor.poll(known) if known and self._due() else {}
        for row in rows:
            if row["id"] in seen and self._from_files(row):
                continue
            with contextlib.suppress(AispError):  # ended by another process meanwhile
                self._follow(row, seen.get(row["id"]))
        self._submit_some()
        return self.cluster.any_active()

    def _due(self) -> bool:
        """Return True if this round asks the executor."""
        now = time.monotonic()
        calm = now - self._changed > CALM_AFTER_S and now - self._asked < CALM_S
        self._asked = self._asked if calm else now
        return not calm

    def wake(self) -> None:
        """Ask the executor in the next round: a job was submitted or cancelled."""
        self._changed = time.monotonic()

    def _from_files(self, row: Any) -> bool:
        """Read the files that the node has written; return True if the job has ended with an answer."""
        folder = Path(row["run_dir"])
        claimed = handover.claimed_by(folder)
        if claimed is None:
            return False
        if row["handle"] != claimed:
            self.cluster.submitted(row["id"], claimed)
        if row["state"] == JobState.QUEUED:
            self.cluster.start(row["id"], (folder / handover.CLAIM).stat().st_mtime)
            self.wake()
        left = handover.read(folder, handover.EXIT)
        if left and left["state"] in (JobState.SUCCEEDED, JobState.FAILED):
            taken = take_answer(self.cluster, row["id"], left)
            if taken:
                self.executor.forget(row)
            return taken
        progress = handover.read(folder, handover.PROGRESS)
        if progress:
            self._say(row, json.dumps(progress))
        return False

    def _follow(self, row: Any, seen: ExecutorState | None) -> None:
        """Update one row to the state that the executor reports."""
        if row["cancel"] and self._cancel(row, seen):
            return
        if seen is None:
            return
        if seen.phase == "silent":
            self._say(row, json.dumps({"message": seen.message}))
            return
        if seen.handle and seen.handle != row["handle"]:
            self.cluster.submitted(row["id"], seen.handle)
        for handle in seen.duplicates:
            self.executor.discard(handle)
        if seen.phase == "running" and row["state"] == JobState.QUEUED:
            self.cluster.start(row["id"], time.time())
            self.wake()
        if seen.phase == "waiting":
            again = "was requeued; " if row["state"] == JobState.RUNNING else ""
            self._say(row, json.dumps({"message": f"{again}{seen.message}"}))
        elif seen.phase == "running" and handover.read(Path(row["run_dir"]), handover.PROGRESS) is None:
            self._say(row, json.dumps({"message": seen.message}))
        if seen.phase in ("ended", "unknown") and self._waited(row, seen):
            end_without_answer(self.cluster, row["id"], seen, self.executor.title)
            self.executor.forget(row)
            self.wake()

    def _waited(self, row: Any, seen: ExecutorState) -> bool:
        """Return True once enough time for an answer to appear has passed since this state was first seen."""
        patience = FORGOTTEN_S if seen.phase == "unknown" else self.grace_s
        if handover.read(Path(row["run_dir"]), handover.EXIT) or row["cancel"] or seen.word not in ("COMPLETED", ""):
            patience = min(patience, self.grace_s / 10)
        return self._age(row["id"], seen.phase) >= patience

    def _cancel(self, row: Any, seen: ExecutorState | None) -> bool:
        """Pass on the request to end a job. Returns True if it has ended, because the executor never had it."""
        silent = seen is None or seen.phase in ("unknown", "silent")
        absent = silent and row["handle"] is None and time.time() - (row["spawned_at"] or 0) > self.settle_s
        if not row["spawns"] or (absent and self.executor.cancel(row)):
            message = f"{row['tool']} was cancelled before it was submitted."
            answer = endings.failure(row["tool"], row["id"], "CANCELLED", message, None)
            self.cluster.queue.end(row["id"], JobState.CANCELLED, reason=f"CANCELLED: {message}", envelope=answer)
            return True
        active = seen is None or seen.phase in ("waiting", "running")
        if active and self._age(row["id"], "cancel") % CANCEL_AGAIN_S < self.executor.tick_s:
            self.executor.cancel(row)
            self.wake()
        return False

    def _submit_some(self) -> None:
        """Submit jobs without an id, oldest first; after an unknown outcome, only when it has had time to appear."""
        until = time.monotonic() + SUBMITTING_S
        together: dict[str, list[Any]] = {}  # rows by the name of their submission: tasks of an array share it
        for row in self.cluster.active():
            if not (row["handle"] or row["cancel"]):
                together.setdefault(self.executor.submission_of(row), []).append(row)
        for rows in together.values():
            if time.monotonic() > until:
                return
            if not rows[0]["spawns"] or abs(time.time() - rows[0]["spawned_at"]) >= self.settle_s:
                self._submit(rows)

    def _submit(self, rows: list[Any]) -> None:
        for row in rows:
            self.cluster.try_submit(row["id"])
        try:
            outcomes = self.executor.submit(rows)
        except (AispError, OSError) as error:
            code, hint = (error.code, error.hint) if isinstance(error, AispError) else ("NOT_STARTED", None)
            for row in rows:
                self._refused(row, code, f"{self.executor.title} did not take {row['tool']}: {error}", hint)
            return
        self.wake()
        for row in rows:
            outcome = outcomes[row["id"]]
            if outcome.handle:
                self.cluster.submitted(row["id"], outcome.handle)
            self._say(row, json.dumps({"message": outcome.message}))

    def _refused(self, row: Any, code: str, message: str, hint: str | None) -> None:
        answer = endings.failure(row["tool"], row["id"], code, message, None, hint)
        with contextlib.suppress(AispError):
            self.cluster.queue.end(row["id"], JobState.FAILED, reason=f"{code}: {message}"[:500], envelope=answer)

    def _say(self, row: Any, progress: str) -> None:
        if row["progress"] != progress:
            self.cluster.say(row["id"], progress)

    def _age(self, job_id: str, phase: str) -> float:
        """Seconds since the first query about a job."""
        now = time.monotonic()
        return now - self._since.setdefault((job_id, phase), now)


def main() -> int:
    """Watch until no job of this executor is left. Returns 0 also if another watcher is running."""
    os.chdir("/")
    home, name = Path(os.environ["AISP_HOME"]), sys.argv[1]
    signals = _catch_signals()
    db = Database(home)
    cluster = ClusterQueue(db, name)
    while cluster.any_active():  # again after releasing the lock: a job may have arrived meanwhile
        with open(watcher_lock(home, name), "a+", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            _sign(lock.fileno())
            _watch(Watcher(db, name, elsewhere(name)), signals)
            os.ftruncate(lock.fileno(), 0)
    return 0


def _sign(fd: int) -> None:
    """Write pid, start time and namespace into the lock file."""
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()} {tree.start_time(os.getpid())} {tree.namespace()}".encode())


def _watch(watcher: Watcher, signals: int) -> None:
    executor, idle = watcher.executor, time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(signals, selectors.EVENT_READ)
        while True:
            try:
                if watcher.look():
                    idle = time.monotonic()
                elif time.monotonic() - idle >= executor.linger_s:
                    return
            except StoreError as error:
                if error.code not in ("STORE_FULL", "STORE_BUSY"):
                    raise
            if selector.select(executor.tick_s):
                os.read(signals, 4096)
                watcher.wake()


def _catch_signals() -> int:
    """The wake signal ends a pause; returns the descriptor to watch."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(WAKE, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return readable


# The executor's word → our code and state.
_ENDINGS = {
    "LOST": ("LOST", JobState.LOST),
    "CANCELLED": ("CANCELLED", JobState.CANCELLED),
    "TIMEOUT": ("TIMEOUT", JobState.FAILED),
    "DEADLINE": ("TIMEOUT", JobState.FAILED),
    "OUT_OF_MEMORY": ("OUT_OF_MEMORY", JobState.FAILED),
    "NODE_FAIL": ("NODE_FAIL", JobState.FAILED),
    "BOOT_FAIL": ("NODE_FAIL", JobState.FAILED),
    "PREEMPTED": ("PREEMPTED", JobState.FAILED),
    "COMPLETED": ("NO_RESULT", JobState.FAILED),
}


def take_answer(cluster: ClusterQueue, job_id: str, left: dict[str, Any]) -> bool:
    """End a job with the answer that its node wrote. left: exit.json. False if the answer itself is not visible yet."""
    row = cluster.queue.row(job_id)
    answer = endings.answer_of(row) if row is not None else None
    if row is None or answer is None:
        return False
    rows = handover.read(Path(row["run_dir"]), handover.ROWS)
    cluster.start(job_id, left["started_at"])
    try:
        with cluster.db.transaction():
            cluster.queue.end(
                job_id,
                endings.state_of(answer),
                exit_code=left["exit_code"],
                reason=endings.sentence(answer),
                envelope=answer,
            )
            take_rows(cluster.db, rows or {})
    except AispError as error:
        if error.code != "JOB_TRANSITION":
            raise
    return True


def end_without_answer(cluster: ClusterQueue, job_id: str, seen: ExecutorState, title: str) -> None:
    """End a job as its executor, by its title, reports its end. Raises AispError JOB_TRANSITION if it already has."""
    row = cluster.queue.row(job_id)
    if row is None:
        return
    left = handover.read(Path(row["run_dir"]), handover.EXIT) or {}
    if seen.phase == "unknown":
        code, state = ("CANCELLED", JobState.CANCELLED) if row["cancel"] or left else ("LOST", JobState.LOST)
        ending = f"{title} no longer knows its job {row['handle']}, and it left no answer"
    else:
        # Only its batch script was signalled: Slurm has seen an ordinary end.
        ordinary = left.get("state") == JobState.CANCELLED and seen.word in ("COMPLETED", "FAILED")
        code, state = _ENDINGS.get("CANCELLED" if ordinary else seen.word, ("CRASHED", JobState.FAILED))
        ending = seen.message + (f", exit code {seen.exit_code}" if seen.word == "FAILED" else "")
    message = f"{row['tool']}: {ending}."
    answer = endings.failure(row["tool"], job_id, code, message, row["started_at"])
    if state is JobState.LOST:
        cluster.start(job_id, row["created_at"])
    cluster.queue.end(job_id, state, exit_code=seen.exit_code, reason=f"{code}: {message}"[:500], envelope=answer)


if __name__ == "__main__":
    sys.exit(main())
