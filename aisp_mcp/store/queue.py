"""The jobs table as supervisors see it: raw rows, so that they start without pydantic.

Resources are strings such as "cpu" or "gpu:<uuid>". A job may start when no earlier active job (queued or running)
shares one of its resources: first in, first out per resource. Jobs without resources share a number of slots.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from aisp_mcp.store.connection import Database
from aisp_mcp.store.records.job_state import JobState, check_transition

SPAWN_AGAIN_S = 5.0  # a started supervisor that has not claimed its job by then is given up
ELSEWHERE = "executor NOT IN ('local', 'inprocess', 'node')"  # jobs that another machine or a cluster runs
SHARED = ""  # the resource of jobs without resources; they hold a claim on it while they are queued


# The oldest claim on each resource, one index lookup for each: thousands may wait after it.
_FIRST_CLAIMS = """
WITH RECURSIVE found(resource) AS (
    SELECT min(resource) FROM claims
    UNION ALL
    SELECT (SELECT min(resource) FROM claims WHERE resource > found.resource)
    FROM found WHERE found.resource IS NOT NULL
)
SELECT resource, (SELECT min(seq) FROM claims WHERE claims.resource = found.resource) AS seq
FROM found WHERE resource IS NOT NULL
"""


class Queue:
    """Claims, endings and everything between. All methods raise StoreError."""

    def __init__(self, db: Database) -> None:
        self.db = db

    def position(self, seq: int) -> int:
        """Number of jobs ahead of a queued one: active ones that share a resource, or queued ones for the slots."""
        resources = [row["resource"] for row in self.db.all("SELECT resource FROM claims WHERE seq = ?", seq)]
        if resources == [SHARED]:
            return self._position_among_equals(seq)
        counted = "*" if len(resources) == 1 else "DISTINCT seq"
        marks = ", ".join("?" for _ in resources)
        sql = f"SELECT count({counted}) AS ahead FROM claims WHERE resource IN ({marks}) AND seq < ?"
        row = self.db.first(sql, *resources, seq)
        return int(row["ahead"]) if row else 0

    def _position_among_equals(self, seq: int) -> int:
        """The same for a job that waits for a slot: those of higher priority, and earlier ones of the same."""
        row = self.db.first(
            "SELECT count(*) AS ahead FROM claims JOIN jobs USING (seq), "
            "(SELECT priority AS own FROM jobs WHERE seq = ?) "
            "WHERE resource = ? AND (priority > own OR priority = own AND seq < ?)",
            *(seq, SHARED, seq),
        )
        return int(row["ahead"]) if row else 0

    def startable(self, slots: int) -> list[str]:
        """Ids of queued jobs that may start now, oldest first. slots: for jobs without resources."""
        first = {r["resource"]: r["seq"] for r in self.db.all(_FIRST_CLAIMS)}
        first.pop(SHARED, None)
        heads = [seq for seq in set(first.values()) if self._leads(seq, first)]
        busy = self.db.first("SELECT count(*) FROM jobs WHERE state = 'running' AND resources = '[]'")
        free = max(slots - (busy[0] if busy else 0), 0)
        sharing = self.db.all(
            "SELECT seq FROM claims JOIN jobs USING (seq) WHERE resource = ? ORDER BY priority DESC, seq LIMIT ?",
            *(SHARED, free),
        )
        seqs = sorted([*heads, *(row["seq"] for row in sharing)])
        marks = ", ".join("?" for _ in seqs)
        sql = f"SELECT id FROM jobs WHERE seq IN ({marks}) AND state = 'queued' AND NOT ({ELSEWHERE}) ORDER BY seq"
        return [row["id"] for row in self.db.all(sql, *seqs)]

    def _leads(self, seq: int, first: Mapping[str, int]) -> bool:
        """Return True if a job is the oldest at every resource it claims."""
        claims = self.db.all("SELECT resource FROM claims WHERE seq = ?", seq)
        return all(first[row["resource"]] == seq for row in claims)

    def take_spawns(self, slots: int) -> list[sqlite3.Row]:
        """Startable jobs that no process is starting yet, as rows, marked as being started. spawns counts
        the attempts.
        """
        if not self.startable(slots):
            return []
        with self.db.transaction():
            now = time.time()
            rows = []
            for job_id in self.startable(slots):
                fresh = self.db.change(
                    "UPDATE jobs SET spawned_at = ?, spawns = spawns + 1 WHERE id = ? AND executor != 'inprocess' "
                    "AND (spawned_at IS NULL OR abs(? - spawned_at) > ?)",
                    *(now, job_id, now, SPAWN_AGAIN_S),
                )
                if fresh:
                    rows.append(self.row(job_id))
        return [row for row in rows if row is not None]

    def row(self, job_id: str) -> sqlite3.Row | None:
        """The whole row."""
        return self.db.first("SELECT * FROM jobs WHERE id = ?", job_id)

    def claim(self, job_id: str, slots: int, owner: Mapping[str, Any]) -> sqlite3.Row | None:
        """Set a queued job to running in the name of owner (pid, pid_start, namespace), if it is its turn.

        Returns its row, or None if another process has it, it has ended, or it must wait.
        """
        with self.db.transaction():
            if job_id not in self.startable(slots):
                self.db.change(
                    "UPDATE jobs SET spawned_at = NULL, spawns = 0 WHERE id = ? AND state = 'queued'", job_id
                )
                return None
            self.move(job_id, JobState.RUNNING, started_at=time.time(), **owner)
            return self.row(job_id)

    def give_again(self, job_id: str) -> bool:
        """Queue a submission anew whose worker is lost. Return False for other jobs, and after the second worker.

        Within a transaction.
        """
        again = self.db.change(
            "UPDATE jobs SET state = 'queued', tries = tries + 1, started_at = NULL, spawned_at = NULL, spawns = 0, "
            "pid = NULL, progress = NULL WHERE id = ? AND state = 'running' AND submission IS NOT NULL AND tries = 0 "
            "AND cancel = 0",
            job_id,
        )
        if again:
            self.db.change("INSERT OR IGNORE INTO claims SELECT ?, seq FROM jobs WHERE id = ?", SHARED, job_id)
        return bool(again)

    def end(self, job_id: str, state: JobState, **columns: Any) -> None:
        """Make a job terminal. Raises AispError JOB_TRANSITION if it already is."""
        with self.db.transaction():
            self.move(job_id, state, ended_at=time.time(), env=None, **columns)

    def move(self, job_id: str, state: JobState, **columns: Any) -> None:
        """Change the state and columns; within a transaction. Raises AispError JOB_TRANSITION."""
        row = self.db.first("SELECT state FROM jobs WHERE id = ?", job_id)
        if row is not None:
            check_transition(JobState(row["state"]), state)
            names = ", ".join(f"{name} = ?" for name in columns)
            self.db.change(f"UPDATE jobs SET state = ?, {names} WHERE id = ?", state.value, *columns.values(), job_id)

    def note_owner(self, job_id: str, owner: Mapping[str, Any]) -> None:
        """Note the process (pid, pid_start, namespace) that waits to run a queued job itself."""
        names = ", ".join(f"{name} = ?" for name in owner)
        self.db.change(f"UPDATE jobs SET {names} WHERE id = ? AND state = 'queued'", *owner.values(), job_id)

    def owned(self) -> list[sqlite3.Row]:
        """Rows of jobs that a process runs, or waits to run itself: id, run_dir, env, started_at, pid, pid_start,
        namespace.
        """
        columns = "id, run_dir, env, started_at, pid, pid_start, namespace"
        waits = "state = 'queued' AND executor = 'inprocess' AND pid IS NOT NULL"
        runs = f"state = 'running' AND NOT ({ELSEWHERE})"
        return self.db.all(f"SELECT {columns} FROM jobs WHERE ({runs}) OR ({waits})")

    def cancel_asked(self, job_id: str) -> bool:
        """True if this job is to be cancelled."""
        row = self.db.first("SELECT cancel FROM jobs WHERE id = ?", job_id)
        return row is None or bool(row["cancel"])

    def progress(self, job_id: str) -> str | None:
        """Progress of a job, as JSON."""
        row = self.db.first("SELECT progress FROM jobs WHERE id = ?", job_id)
        return row["progress"] if row else None
