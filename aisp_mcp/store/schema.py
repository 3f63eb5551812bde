"""The tables, as numbered migrations. A migration that has shipped is never edited; a new one is appended."""

from __future__ import annotations

import sqlite3

from aisp_mcp.errors import StoreError

_JOBS = """
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tool TEXT NOT NULL,
    params TEXT NOT NULL,
    principal TEXT NOT NULL,
    state TEXT NOT NULL,
    resources TEXT NOT NULL,
    timeout_s REAL NOT NULL,
    run_dir TEXT NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    progress TEXT,
    exit_code INTEGER,
    reason TEXT,
    envelope TEXT,
    -- how to start it: interpreter, folder, environment (dropped at the end) of whoever asked
    python TEXT NOT NULL,
    cwd TEXT NOT NULL,
    env TEXT,
    spawned_at REAL,
    -- who watches it: a pid means something only in its namespace and together with its start time
    pid INTEGER,
    pid_start INTEGER,
    namespace TEXT,
    cancel INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_active ON jobs (seq) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_principal ON jobs (principal, seq);
CREATE INDEX jobs_state ON jobs (principal, state, seq);
CREATE INDEX jobs_tool ON jobs (principal, tool, seq);
CREATE INDEX jobs_tool_state ON jobs (principal, tool, state, seq);
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
"""

_RUNS = """
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    job_id TEXT,
    created_at REAL NOT NULL,
    body TEXT NOT NULL
);
"""

_MEASUREMENTS = """
CREATE TABLE measurements (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    device TEXT NOT NULL,
    value REAL NOT NULL,
    unit TEXT NOT NULL,
    detail TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE INDEX measurements_best ON measurements (kind, device, value);
"""

_COUNT_SPAWNS = "ALTER TABLE jobs ADD COLUMN spawns INTEGER NOT NULL DEFAULT 0"

# The user of the machine lists everybody's jobs; a principal of the HTTP server its own.
_EVERYBODYS_JOBS = """
CREATE INDEX jobs_all_state ON jobs (state, seq);
CREATE INDEX jobs_all_tool ON jobs (tool, seq);
CREATE INDEX jobs_all_tool_state ON jobs (tool, state, seq);
"""

MIGRATIONS: tuple[str, ...] = (_JOBS + _RUNS + _MEASUREMENTS, _COUNT_SPAWNS, _EVERYBODYS_JOBS)
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to VERSION, one migration per transaction. Raises StoreError STORE_NEWER, and sqlite3.Error."""
    while (version := _version(connection)) < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == version:  # nobody else was faster
                for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    if version > VERSION:
        raise StoreError(
            "STORE_NEWER",
            f"The store has schema {version}; this version knows up to {VERSION}.",
            "Update aisp-mcp, or point AISP_HOME at another folder.",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
