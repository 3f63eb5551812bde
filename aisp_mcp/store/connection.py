"""One SQLite file, shared by threads and processes, with named errors. No slow imports."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aisp_mcp.errors import StoreError
from aisp_mcp.store.private import DATABASE, make_private
from aisp_mcp.store.schema import migrate

BUSY_S = 10.0
RESERVE_BYTES = 1_000_000
_TIGHT_BYTES = 256 * 1024  # less free space than this explains an I/O error


class Database:
    """A connection with a lock: calls take well under a millisecond, so threads take turns.

    WAL: readers never wait for writers. synchronous=NORMAL: a commit survives any crash of processes; a power cut may
    lose the last commits, never part of one.
    """

    def __init__(self, home: Path, busy_s: float = BUSY_S) -> None:
        """Open or create home/aisp.db. Raises StoreError."""
        self.home = home
        self.path = home / DATABASE
        self._lock = threading.RLock()
        with self._named():
            make_private(home)
            self._connection = sqlite3.connect(self.path, timeout=busy_s, isolation_level=None, check_same_thread=False)
            try:
                self._set_up(busy_s)
            except BaseException:
                self._connection.close()
                raise

    def _set_up(self, busy_s: float) -> None:
        self._connection.row_factory = sqlite3.Row
        deadline = time.monotonic() + busy_s
        while True:
            try:
                if self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                    self._connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:  # the switch to WAL does not wait
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        migrate(self._connection, self.home)

    def close(self) -> None:
        """Close the file; the object is unusable afterwards."""
        with self._lock:
            self._connection.close()

    def all(self, sql: str, *args: Any) -> list[sqlite3.Row]:
        """Rows of one statement. Raises StoreError."""
        with self._lock, self._named():
            return self._connection.execute(sql, args).fetchall()

    def first(self, sql: str, *args: Any) -> sqlite3.Row | None:
        """The first row, or None. Raises StoreError."""
        rows = self.all(sql, *args)
        return rows[0] if rows else None

    def change(self, sql: str, *args: Any) -> int:
        """Run one changing statement; return the number of affected rows. Raises StoreError."""
        with self._lock, self._named():
            return self._connection.execute(sql, args).rowcount

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; no other process writes meanwhile. Raises StoreError.

        Within another transaction of the same thread, it is part of that one.
        """
        with self._lock, self._named():
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has already rolled back
                    self._connection.execute("ROLLBACK")
                raise

    def keep_reserve(self) -> None:
        """Reserve some disk space, so that finished jobs can still be recorded when the disk is full."""
        path = self.home / "reserve"
        if path.exists():
            return
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            except OSError:
                path.unlink()
            finally:
                os.close(fd)

    def free_reserve(self) -> None:
        """Release the reserve."""
        with contextlib.suppress(OSError):
            (self.home / "reserve").unlink()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _name(error, self.path) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise full(self.home) from error
            raise


def full(home: Path) -> StoreError:
    return StoreError(
        "STORE_FULL",
        f"No space is left on the disk that holds {home}.",
        "Free space, or remove old jobs with aisp_job_clean, or set AISP_HOME to another disk.",
        [("aisp_job_clean", {})],
    )


def corrupt(path: Path, what: object) -> StoreError:
    """The error of a damaged file; it says where each answer can still be found."""
    return StoreError(
        "STORE_CORRUPT",
        f"The database {path} is damaged: {what}.",
        f"Stop all servers and move {path.name}, {path.name}-wal and {path.name}-shm away; a new store is made at the "
        f"next start. Answers are stored separately: {path.parent}/runs/<job id>/envelope.json and run.json.",
    )


def _name(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _tight(path.parent)):
        return full(path.parent)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in str(error):
        return corrupt(path, error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            "STORE_BUSY",
            f"Another process has held {path} for longer than {BUSY_S:g} s.",
            "Try again; if it stays, look for a stopped process that has the file open.",
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreError(
            "STORE_UNWRITABLE", f"Cannot write {path}: {error}.", "Set AISP_HOME to a folder you may write."
        )
    return StoreError("STORE_FAILED", f"The database {path} failed: {error}.", "See the file system's state and log.")


def _tight(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free < _TIGHT_BYTES
    return False
