"""Jobs that a cluster or another machine runs, as their watcher sees them, and the rows that such a job brings back.

A job's node has its own store on a local disk, because SQLite's write-ahead log does not work over network file
systems. Rows that it adds there (runs, measurements) are written to a file and imported here.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from aisp_mcp.store.connection import Database
from aisp_mcp.store.queue import ELSEWHERE, Queue
from aisp_mcp.store.records.job_state import JobState

_TAKEN = {
    "runs": ("id", "job_id", "created_at", "body"),
    "measurements": ("kind", "device", "value", "unit", "detail", "created_at"),
}
_ACTIVE = "state IN ('queued', 'running')"


def executors_with_jobs(db: Database) -> list[str]:
    """The executors elsewhere that have active jobs. Raises StoreError."""
    return [row["executor"] for row in db.all(f"SELECT DISTINCT executor FROM jobs WHERE {_ACTIVE} AND {ELSEWHERE}")]


class ClusterQueue:
    """The rows of the active jobs of one executor elsewhere. All methods raise StoreError."""

    def __init__(self, db: Database, executor: str) -> None:
        self.db = db
        self.executor = executor
        self.queue = Queue(db)

    def active(self) -> list[sqlite3.Row]:
        """Whole rows, oldest first."""
        return self.db.all(f"SELECT * FROM jobs WHERE {_ACTIVE} AND executor = ? ORDER BY seq", self.executor)

    def any_active(self) -> bool:
        """Return True while there is a job to watch."""
        sql = f"SELECT 1 FROM jobs WHERE {_ACTIVE} AND executor = ? LIMIT 1"
        return self.db.first(sql, self.executor) is not None

    def try_submit(self, job_id: str) -> None:
        """Record, before the attempt, that the job is being submitted: from now on the cluster may know it."""
        self.db.change("UPDATE jobs SET spawned_at = ?, spawns = spawns + 1 WHERE id = ?", time.time(), job_id)

    def submitted(self, job_id: str, handle: str) -> None:
        """Store the cluster's id of a job."""
        self.db.change("UPDATE jobs SET handle = ? WHERE id = ?", handle, job_id)

    def start(self, job_id: str, at: float) -> None:
        """Set a queued job to running. at: UTC seconds."""
        with self.db.transaction():
            row = self.queue.row(job_id)
            if row is not None and row["state"] == JobState.QUEUED:
                self.queue.move(job_id, JobState.RUNNING, started_at=at)

    def say(self, job_id: str, progress: str) -> None:
        """Replace the progress, JSON, of an active job."""
        self.db.change(f"UPDATE jobs SET progress = ? WHERE id = ? AND {_ACTIVE}", progress, job_id)


def rows_made(db: Database) -> dict[str, list[dict[str, Any]]]:
    """The runs and measurements of a store, as plain data."""
    return {
        table: [dict(row) for row in db.all(f"SELECT {', '.join(columns)} FROM {table} ORDER BY seq")]
        for table, columns in _TAKEN.items()
    }


def take_rows(db: Database, rows_by_table: dict[str, list[dict[str, Any]]]) -> None:
    """Add rows of another store. Importing the same file twice adds nothing."""
    with db.transaction():
        for table, columns in _TAKEN.items():
            names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
            same = " AND ".join(f"{name} = ?" for name in (columns[:1] if table == "runs" else columns))
            for row in rows_by_table.get(table, []):
                values = [row[name] for name in columns]
                known = db.first(f"SELECT 1 FROM {table} WHERE {same}", *(values[:1] if table == "runs" else values))
                if known is None:
                    db.change(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values)
