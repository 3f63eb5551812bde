"""Jobs as records, and the removal of old ones."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from aisp_mcp.envelope import Envelope, Progress
from aisp_mcp.errors import NotFound
from aisp_mcp.records import Record
from aisp_mcp.store.connection import Database, corrupt
from aisp_mcp.store.files import folder_of, size_of
from aisp_mcp.store.queue import Queue
from aisp_mcp.store.records.job import Job, JobState

# All fields of a Job except the envelope, which may be large.
_SHOWN = (
    "id, tool, params, state, resources, timeout_s, created_at, started_at, ended_at, progress, pid, exit_code, "
    "reason, principal, run_dir, seq"
)
MAX_PAGE = 200


@dataclass(frozen=True)
class Submission:
    """What a client of a judge server says of a job. digest: of its content; key: under which it is known."""

    digest: str
    key: str
    priority: int = 0


class JobsTable:
    """Part of the store. Every method raises StoreError."""

    db: Database
    queue: Queue

    def insert_job(
        self,
        job: Job,
        *,
        python: str,
        cwd: str,
        env: dict[str, str],
        executor: str = "local",
        placement: dict[str, Any] | None = None,
        submission: Submission | None = None,
    ) -> None:
        """Add a queued job. python, cwd, env: what to start it with.

        placement: the request to a cluster. submission: what a client of a judge server said of it.
        """
        request = None if placement is None else json.dumps(placement)
        with self.db.transaction():
            self.db.change(
                "INSERT INTO jobs (id, tool, params, principal, state, resources, timeout_s, run_dir, created_at, "
                "python, cwd, env) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(job.id, job.tool, json.dumps(job.params), job.principal, job.state.value, json.dumps(job.resources)),
                *(job.timeout_s, job.run_dir, job.created_at, python, cwd, json.dumps(env)),
            )
            if executor != "local":
                sql = "UPDATE jobs SET executor = ?, placement = ? WHERE id = ?"
                self.db.change(sql, executor, request, job.id)
            if submission is not None:
                sql = "UPDATE jobs SET priority = ?, submission = ?, key = ? WHERE id = ?"
                self.db.change(sql, submission.priority, submission.digest, submission.key, job.id)

    def submitted(self, principal: str, key: str) -> tuple[str, str] | None:
        """The job that a principal submitted under a key, and the hash of its content."""
        row = self.db.first("SELECT id, submission FROM jobs WHERE principal = ? AND key = ?", principal, key)
        return None if row is None else (row["id"], row["submission"])

    def free_key(self, job_id: str) -> None:
        """Let the key of an ended job be used again."""
        self.db.change("UPDATE jobs SET key = NULL WHERE id = ? AND ended_at IS NOT NULL", job_id)

    def seconds_taken(self, tool: str | None = None) -> float | None:
        """How long the last submissions of a tool, or of all, took on average from start to end; None if there was
        none.
        """
        row = self.db.first(
            "SELECT avg(ended_at - started_at) AS took FROM (SELECT ended_at, started_at FROM jobs WHERE "
            "submission IS NOT NULL AND started_at IS NOT NULL AND ended_at IS NOT NULL AND (? IS NULL OR tool = ?) "
            "ORDER BY seq DESC LIMIT 20)",
            *(tool, tool),
        )
        return row["took"] if row else None

    def count_waiting(self) -> int:
        """Number of submissions that wait."""
        row = self.db.first("SELECT count(*) FROM jobs WHERE state = 'queued' AND submission IS NOT NULL")
        return int(row[0]) if row else 0

    def count_queued(self, principal: str) -> int:
        """Number of a principal's jobs that wait."""
        row = self.db.first("SELECT count(*) FROM jobs WHERE principal = ? AND state = 'queued'", principal)
        return int(row[0]) if row else 0

    def job(self, job_id: str) -> Job:
        """One job, with its envelope once it has ended. Raises NotFound UNKNOWN_JOB."""
        return self.jobs([job_id])[0]

    def jobs(self, ids: Sequence[str]) -> list[Job]:
        """Jobs in the order of ids, with their envelopes. Raises NotFound UNKNOWN_JOB for the first missing one."""
        marks = ", ".join("?" for _ in ids)
        rows = self.db.all(f"SELECT {_SHOWN}, envelope FROM jobs WHERE id IN ({marks})", *ids)
        by_id = {job.id: job for job in self._records(rows)}
        for job_id in ids:
            if job_id not in by_id:
                raise unknown_job(job_id)
        return [by_id[job_id] for job_id in ids]

    def list_jobs(
        self,
        state: JobState | None = None,
        tool: str | None = None,
        limit: int = 20,
        cursor: int | None = None,
        principal: str | None = None,
    ) -> tuple[list[Job], int | None]:
        """Newest first, without envelopes, and the cursor of the next page; principal: their owner, None for all.

        The cost does not grow with the number of stored jobs.
        """
        before = cursor if cursor is not None else 2**62
        filters = {"principal =": principal, "tool =": tool, "state =": state and state.value, "seq <": before}
        conditions = {f"{column} ?": value for column, value in filters.items() if value is not None}
        limit = max(1, min(limit, MAX_PAGE))
        sql = f"SELECT {_SHOWN}, NULL AS envelope FROM jobs WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT ?"
        rows = self.db.all(sql, *conditions.values(), limit + 1)
        more = rows[limit - 1]["seq"] if len(rows) > limit else None
        return self._records(rows[:limit]), more

    def array_jobs(self, tool: str, principal: str) -> list[tuple[Job, dict[str, Any]]]:
        """Tasks of Slurm arrays that a principal submitted for a tool, newest first, with the data in their rows."""
        sql = (
            f"SELECT {_SHOWN}, envelope, placement FROM jobs WHERE tool = ? AND principal = ? AND executor = 'slurm' "
            "AND json_extract(placement, '$.array') IS NOT NULL ORDER BY seq DESC"
        )
        rows = self.db.all(sql, tool, principal)
        arrays = [json.loads(row["placement"])["array"] for row in rows]
        return list(zip(self._records(rows), arrays, strict=True))

    def transition(self, job_id: str, state: JobState, **columns: Any) -> Job:
        """Change a job's state in one step. Raises AispError JOB_TRANSITION, NotFound UNKNOWN_JOB."""
        with self.db.transaction():
            self.queue.move(job_id, state, **columns or {"reason": None})
        return self.job(job_id)

    def set_progress(self, job_id: str, progress: Progress) -> None:
        """Record the progress of a running job."""
        text = progress.model_dump_json(exclude_none=True)
        self.db.change("UPDATE jobs SET progress = ? WHERE id = ? AND state = 'running'", text, job_id)

    def finish(self, job_id: str, envelope: Envelope) -> None:
        """Store a running job's answer. Its state changes when its supervisor has seen the whole tree end."""
        text = envelope.model_dump_json(exclude_none=True)
        self.db.change("UPDATE jobs SET envelope = ? WHERE id = ? AND state = 'running'", text, job_id)

    def ask_cancel(self, job_id: str) -> None:
        """Request that this job ends; its supervisor checks about once a second."""
        self.db.change("UPDATE jobs SET cancel = 1 WHERE id = ? AND state IN ('queued', 'running')", job_id)

    def cancel_queued(self, job_id: str, envelope: str) -> bool:
        """Cancel a job that has not started. Return False if it is no longer queued."""
        with self.db.transaction():
            row = self.db.first("SELECT state FROM jobs WHERE id = ?", job_id)
            if row is None or row["state"] != JobState.QUEUED:
                return False
            self.queue.end(job_id, JobState.CANCELLED, reason="cancelled before it started", envelope=envelope)
            return True

    def _records(self, rows: list[sqlite3.Row]) -> list[Job]:
        return [self._record(r, self.queue.position(r["seq"]) if r["state"] == "queued" else None) for r in rows]

    def _record(self, row: sqlite3.Row, position: int | None) -> Job:
        try:
            values: dict[str, Any] = {name: row[name] for name in row.keys() if name != "placement"}  # noqa: SIM118
            for name in ("params", "resources", "progress"):
                values[name] = json.loads(values[name]) if values[name] else None
            ended = JobState(values["state"]).terminal
            values["envelope"] = json.loads(values["envelope"]) if ended and values["envelope"] else None
            return Job(**values, position=position)
        except (ValueError, TypeError, ValidationError) as error:
            raise corrupt(self.db.path, f"job {row['id']!r} is unreadable ({type(error).__name__})") from error


def unknown_job(job_id: str) -> NotFound:
    """The error for a job that is not in the store."""
    return NotFound(
        "UNKNOWN_JOB",
        f"No job has the id {job_id[:80]!r}.",
        "It may have been cleaned, or belong to a server with another AISP_HOME.",
        [("aisp_job_list", {})],
    )


class Cleaned(Record):
    """Jobs that a clean-up removed, or would remove."""

    jobs: int = Field(description="Ended jobs, with their folders and runs.")
    freed_mb: float
    kept_jobs: int
    kept_mb: float
    oldest_kept_at: float | None = Field(default=None, description="End of the oldest remaining job, UTC seconds.")


class JobRetention:
    """Part of the store. Every method raises StoreError."""

    db: Database

    def clean(self, keep_days: float, keep_mb: float, dry_run: bool, principal: str | None = None) -> Cleaned:
        """Remove ended jobs older than keep_days, then the oldest until the rest fits keep_mb. Never active ones.

        principal: whose jobs; None for everybody's.
        """
        rows = self.db.all(
            "SELECT id, ended_at FROM jobs WHERE ended_at IS NOT NULL AND (? IS NULL OR principal = ?) "
            "ORDER BY ended_at DESC, seq DESC",
            *(principal, principal),
        )
        limit, old = keep_mb * 1e6, time.time() - keep_days * 86_400
        kept_bytes = freed_bytes = kept_jobs = 0
        doomed: list[str] = []
        oldest = None
        for row in rows:
            size = size_of(folder_of(self.db.home, row["id"]))
            if row["ended_at"] >= old and kept_bytes + size <= limit and not doomed:
                kept_jobs, kept_bytes, oldest = kept_jobs + 1, kept_bytes + size, row["ended_at"]
            else:
                doomed.append(row["id"])
                freed_bytes += size
        if not dry_run:
            for job_id in doomed:
                self.remove_job(job_id)
        return Cleaned(
            jobs=len(doomed),
            freed_mb=round(freed_bytes / 1e6, 3),
            kept_jobs=kept_jobs,
            kept_mb=round(kept_bytes / 1e6, 3),
            oldest_kept_at=oldest,
        )

    def remove_job(self, job_id: str) -> None:
        """Remove a job that has ended, with its folder and runs.

        The row goes last: if this is interrupted, the next clean-up finds the job again.
        """
        folder: Path = folder_of(self.db.home, job_id)
        shutil.rmtree(folder, ignore_errors=True)
        with self.db.transaction():
            self.db.change("DELETE FROM runs WHERE job_id = ?", job_id)
            self.db.change("DELETE FROM jobs WHERE id = ? AND ended_at IS NOT NULL", job_id)
