"""Remove the environment, user names and host names that nsys writes into its reports."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

_SECRET = re.compile(r"key|token|secret|passw|credential|auth|cookie|private|session|dsn|webhook|connection", re.I)
_REMOVED = "[removed]"
_ROWS = (
    ("TARGET_INFO_SYSTEM_ENV", ("DeviceEnvironment", "Hostname", "SystemUID")),
    ("META_DATA_EXPORT", ("EXPORT_HOST", "EXPORT_USER")),
    ("META_DATA_CAPTURE", ("DEVICE_DISPLAY_NAME", "PROCESS_0:USER_NAME")),
)


def secrets(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Values of variables whose names mark them as secret, longest first; short ones would match innocent text."""
    values = {
        value for name, value in environ.items() if _SECRET.search(name) and len(value) >= 6 and not value.isdigit()
    }
    return sorted(values, key=lambda value: (-len(value), value))


def scrub_database(path: Path, values: list[str]) -> int:
    """Remove environment, user and host rows, captured program output, and each value wherever it occurs.

    The file is rewritten, so nothing remains in freed pages. Returns the number of changed texts.
    """
    with closing(sqlite3.connect(path)) as db:
        changed = sum(_blank(db, table, names) for table, names in _ROWS)
        changed += _blank_environment(db)
        for value in values:
            changed += _replace(db, value)
        db.commit()
        db.execute("VACUUM")
        return changed


def _tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')] for name in names}


def _blank(db: sqlite3.Connection, table: str, names: tuple[str, ...]) -> int:
    if not {"name", "value"} <= set(_tables(db).get(table, [])):
        return 0
    marks = ", ".join("?" for _ in names)
    return db.execute(f'UPDATE "{table}" SET value = ? WHERE name IN ({marks})', (_REMOVED, *names)).rowcount


def _blank_environment(db: sqlite3.Connection) -> int:
    """Remove the program's variables and its output."""
    tables, changed = _tables(db), 0
    if "value" in tables.get("META_DATA_CAPTURE", []):
        changed += db.execute(
            "UPDATE META_DATA_CAPTURE SET value = ? WHERE name LIKE '%ENVIRONMENT%'", (_REMOVED,)
        ).rowcount
    if "value" in tables.get("StringIds", []):
        # Newer versions store each process's whole environment as one text, with NULs between the variables.
        blocks = "instr(value, char(0)) AND instr(value, '=')"
        changed += db.execute(f"UPDATE StringIds SET value = ? WHERE {blocks}", (_REMOVED,)).rowcount
    for table in ("ANALYSIS_FILE", "ProcessStreams"):
        if "contentId" in tables.get(table, []) and "StringIds" in tables:
            chosen = f'id IN (SELECT contentId FROM "{table}") AND instr(value, char(10))'
            query = f"UPDATE StringIds SET value = ? WHERE {chosen}"
            changed += db.execute(query, (_REMOVED,)).rowcount
    return changed


def _replace(db: sqlite3.Connection, value: str) -> int:
    changed = 0
    for table, columns in _tables(db).items():
        for column in columns:
            cell = f'"{column}"'
            where = f"typeof({cell}) = 'text' AND instr({cell}, ?)"
            query = f'UPDATE "{table}" SET {cell} = replace({cell}, ?, ?) WHERE {where}'
            changed += db.execute(query, (value, _REMOVED, value)).rowcount
    return changed


def holds(path: Path, values: list[str]) -> bool:
    """Return True if the file's bytes contain any of the values in plain form. For formats that cannot be edited."""
    data = path.read_bytes()
    return any(value.encode() in data for value in values)
