"""Selection of jobs to remove: old ended jobs, and the oldest ones when all of them take too much space."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.store.connection import Database
from aisp_mcp.store.files import folder_of, size_of


class Cleaned(Record):
    """Jobs that a clean-up removed, or would remove."""

    jobs: int = Field(description="Ended jobs, with their folders and runs.")
    freed_mb: float
    kept_jobs: int
    kept_mb: float
    oldest_kept_at: float | None = Field(default=None, description="End of the oldest remaining job, UTC seconds.")


class Retention:
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
                self._remove(job_id)
        return Cleaned(
            jobs=len(doomed),
            freed_mb=round(freed_bytes / 1e6, 3),
            kept_jobs=kept_jobs,
            kept_mb=round(kept_bytes / 1e6, 3),
            oldest_kept_at=oldest,
        )

    def _remove(self, job_id: str) -> None:
        """Remove the row last: if this is interrupted, the next clean-up finds the job again."""
        folder: Path = folder_of(self.db.home, job_id)
        shutil.rmtree(folder, ignore_errors=True)
        with self.db.transaction():
            self.db.change("DELETE FROM runs WHERE job_id = ?", job_id)
            self.db.change("DELETE FROM jobs WHERE id = ? AND ended_at IS NOT NULL", job_id)
