"""The store: one SQLite file for frequent queries, a folder per run for everything large."""

from __future__ import annotations

from pathlib import Path

from aisp_mcp.store.connection import Database
from aisp_mcp.store.jobs import JobRetention, JobsTable
from aisp_mcp.store.measurements import MeasurementsTable
from aisp_mcp.store.queue import Queue
from aisp_mcp.store.runs import ImportsTable, RunsTable, VerdictsTable


class Store(JobsTable, RunsTable, VerdictsTable, MeasurementsTable, ImportsTable, JobRetention):
    """Everything that is stored, in one folder. Safe to share among threads; other processes open their own.

    home/aisp.db: jobs, runs, measurements, imports. home/runs/<id>/: artifacts, log.txt, envelope.json, run.json.
    home/reserve: disk space reserved so that running jobs can be recorded when the disk is full.
    """

    def __init__(self, home: Path) -> None:
        """Open or create. Raises StoreError STORE_NEWER, STORE_CORRUPT, STORE_FULL, STORE_BUSY, STORE_UNWRITABLE."""
        self.home = Path(home).absolute()
        self.db = Database(self.home)
        self.db.keep_reserve()
        self.queue = Queue(self.db)

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
