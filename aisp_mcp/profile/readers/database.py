"""An untrusted SQLite file, opened read-only: no code in it runs, and no other file is touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aisp_mcp.profile.readers.allowance import Allowance
from aisp_mcp.profile.readers.files import MAX_TEXT, ProfileFile, bad, read, too_large

_ROWS = 20_000  # rows fetched at a time
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_FUNCTIONS = {"substr", "typeof", "count", "length"}


class ReportDatabase:
    """Read-only access by table and column; columns missing from this file's version are returned as None."""

    def __init__(self, connection: sqlite3.Connection, allowance: Allowance) -> None:
        self._db = connection
        self._allowance = allowance
        self.columns = self._tables()

    def _tables(self) -> dict[str, list[str]]:
        """Plain tables only: a view or a virtual table of that name would run untrusted SQL or code."""
        texts: dict[str, list[str]] = {}
        rows = self._db.execute("SELECT name, substr(sql, 1, 20) FROM sqlite_schema WHERE type = 'table'").fetchall()
        if len(rows) > 2000:
            raise too_large("The database has more than 2,000 tables")
        for name, sql in rows:
            if isinstance(name, str) and isinstance(sql, str) and sql.upper().startswith("CREATE TABLE"):
                quoted = name.replace('"', '""')
                info = self._db.execute(f'PRAGMA table_info("{quoted}")').fetchall()
                texts[name] = [str(row[1]) for row in info]
        return texts

    def has(self, table: str) -> bool:
        return table in self.columns

    def count(self, table: str, integers: str = "") -> int:
        """Rows of a table, or of those in which the columns contain integers."""
        if not self.has(table):
            return 0
        return int(
            self._db.execute(f'SELECT count(*) FROM "{table}" WHERE {self._whole(table, integers)}').fetchone()[0]
        )

    def _whole(self, table: str, integers: str) -> str:
        have = self.columns[table]
        return " AND ".join(f"typeof(\"{c}\") = 'integer'" for c in integers.split() if c in have) or "1"

    def rows(self, table: str, columns: str, integers: str = "") -> Iterator[tuple[Any, ...]]:
        """The named columns of a table, None if the version has none. Texts are truncated at 16 KB.

        integers: columns that must contain integers; other rows are left out. Raises AispError TOO_LARGE.
        """
        for part in self.parts(table, columns, integers):
            yield from part

    def parts(self, table: str, columns: str, integers: str = "", numbers: str = "") -> Iterator[list[tuple[Any, ...]]]:
        """As rows, thousands at a time. numbers: columns that are read as integers, or None if they are empty."""
        if not self.has(table):
            return
        have, whole, cast = set(self.columns[table]), integers.split(), numbers.split()
        selected = ", ".join(
            (f'"{c}"' if c in whole else f'"{c}" | 0' if c in cast else self._column(c)) if c in have else "NULL"
            for c in columns.split()
        )
        cursor = self._db.execute(f'SELECT {selected} FROM "{table}" WHERE {self._whole(table, integers)}')
        while part := cursor.fetchmany(_ROWS):
            self._allowance.check()
            yield part

    def positive(self, table: str, column: str) -> bool:
        """Return True if a row of the table has a number above 0 in this column."""
        if column not in self.columns.get(table, ()):
            return False
        row = self._db.execute(f'SELECT 1 FROM "{table}" WHERE typeof("{column}") = \'integer\' AND "{column}" > 0')
        return row.fetchone() is not None

    @staticmethod
    def _column(name: str) -> str:
        bounded = f"CASE typeof(\"{name}\") WHEN 'text' THEN substr(\"{name}\", 1, 16384) WHEN 'blob' THEN NULL"
        return f'{bounded} ELSE "{name}" END'

    def enum(self, table: str) -> dict[int, str]:
        """id → label of an ENUM_ table."""
        return {i: str(label) for i, label in self.rows(table, "id label", "id")}


def _authorize(action: int, first: str | None, two: str | None, _db: str | None, _via: str | None) -> int:
    if action in _ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and two in _FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "table_info":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


@contextmanager
def open_database(file: ProfileFile) -> Iterator[ReportDatabase]:
    """Open read-only and immutable. Raises UsageError BAD_PROFILE if SQLite cannot read it, AispError TOO_LARGE."""
    allowance = Allowance()
    try:
        with closing(_connect(file, allowance)) as connection:
            yield ReportDatabase(connection, allowance)
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise too_large(allowance.exceeded() or f"Reading {file.path.name!r} was interrupted") from error
        raise bad(f"{file.path.name!r} is not a readable SQLite file: {error}.") from error
    except (sqlite3.Error, MemoryError, OverflowError, UnicodeDecodeError) as error:
        raise bad(f"{file.path.name!r} is not a readable SQLite file: {error}.") from error


def _connect(file: ProfileFile, allowance: Allowance) -> sqlite3.Connection:
    if file.compressed:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.deserialize(_plain_header(read(file, MAX_TEXT)))
    else:
        uri = f"file:{quote(str(Path(file.path)))}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64 * 2**20)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(lambda: int(allowance.exceeded() is not None), 1_000_000)
    return connection


def _plain_header(data: bytes) -> bytes:
    """Clear the flags of write-ahead mode (bytes 18 and 19), which a database in memory cannot use."""
    if len(data) < 100 or data[:16] != b"SQLite format 3\x00":
        raise bad("The file inside is not SQLite.")
    return data[:18] + b"\x01\x01" + data[20:]
