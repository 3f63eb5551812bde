"""Runs, their verdicts, and result files of other tools.

A run is a row, and the same document as run.json in the run's folder. Its verdicts are rows with indexes, so that lists
over ten thousand runs never parse a run's body. Imports were measured elsewhere and are separate from runs, which were
judged here. Of runs and imports the store knows id and time; the rest of a document is up to the caller's record class.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from aisp_mcp.store.connection import Database, corrupt
from aisp_mcp.store.files import folder_of, unknown_run, write_atomic
from aisp_mcp.store.records.verdict_row import ANY_KIND, QUICK, RunKind, VerdictFilter, VerdictRow

MAX_PAGE = 200
NAMED = 1000  # newest runs searched for a name
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
# A run belongs to the owner of its job; without a principal all runs are visible.
_ITS = "(? IS NULL OR EXISTS (SELECT 1 FROM jobs WHERE jobs.id = runs.job_id AND jobs.principal = ?))"
# Further looks of a gate, which were once runs of their own.
_LOOK = "(job_id IS NULL AND coalesce(json_extract(body, '$.comparisons[0].log_path'), '') LIKE '%/look-_/%')"


class RunDocument(Protocol):
    """A record that can be stored as a run."""

    @property
    def id(self) -> str: ...
    @property
    def created_at(self) -> float: ...
    def model_dump_json(self) -> str: ...


AnyRun = TypeVar("AnyRun", bound=BaseModel)


class RunsTable:
    """Part of the store. Every method raises StoreError."""

    db: Database

    def run_dir(self, run_id: str) -> Path:
        """The folder of a run or job, home/runs/<id>; it may not exist yet. Raises NotFound UNKNOWN_RUN."""
        return folder_of(self.db.home, run_id)

    def save_run(self, run: RunDocument, job_id: str | None) -> None:
        """Store a run; saving the same id again replaces it."""
        body = run.model_dump_json()
        folder = self.run_dir(run.id)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "run.json", body)
        self.db.change(
            "INSERT INTO runs (id, job_id, created_at, body) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET job_id = excluded.job_id, body = excluded.body",
            *(run.id, job_id, run.created_at, body),
        )

    def run(self, record: type[AnyRun], run_id: str, principal: str | None = None) -> AnyRun:
        """A run as that record; `last`, `last~1` and names that users gave are accepted in place of its id.

        Raises NotFound UNKNOWN_RUN, also if its job belongs to a principal other than this one (None: any).
        """
        row = self.db.first(f"SELECT id, body FROM runs WHERE id = ? AND {_ITS}", run_id, principal, principal)
        row = row or self._referred(run_id, principal)
        if row is None:
            raise unknown_run(run_id)
        return self._run(record, row)

    def _referred(self, text: str, principal: str | None) -> sqlite3.Row | None:
        """The run that `last`, `last~1` (the one before) or a name means; of several with a name, the newest."""
        its = f"SELECT id, body FROM runs WHERE seq < ? AND {_ITS} ORDER BY seq DESC"
        newest = 2**62, principal, principal
        if match := _LAST.fullmatch(text):
            own = its.replace("WHERE", f"WHERE NOT {_LOOK} AND")
            return self.db.first(f"{own} LIMIT 1 OFFSET ?", *newest, int(match[1] or 0))
        if not text:
            return None
        named = f"SELECT id, body FROM ({its} LIMIT {NAMED}) WHERE json_extract(body, '$.name') = ? LIMIT 1"
        return self.db.first(named, *newest, text)

    def relabel_run(self, run: RunDocument) -> None:
        """Replace the document of a stored run; its job and its verdicts stay as they are."""
        body = run.model_dump_json()
        write_atomic(self.run_dir(run.id) / "run.json", body)
        self.db.change("UPDATE runs SET body = ? WHERE id = ?", body, run.id)

    def newest_runs(
        self, record: type[AnyRun], limit: int, before: int | None, principal: str | None
    ) -> list[tuple[AnyRun, int]]:
        """Runs with their position in storage order, newest first, from before the given position."""
        sql = f"SELECT seq, id, body FROM runs WHERE seq < ? AND {_ITS} AND NOT {_LOOK} ORDER BY seq DESC LIMIT ?"
        rows = self.db.all(sql, 2**62 if before is None else before, principal, principal, max(1, min(limit, MAX_PAGE)))
        return [(self._run(record, row), row["seq"]) for row in rows]

    def run_ids(self, limit: int = 20, principal: str | None = None, kinds: Sequence[RunKind] = ANY_KIND) -> list[str]:
        """Ids of runs, newest first; kinds: only of runs whose verdicts are of these kinds."""
        other = [kind.value for kind in RunKind if kind not in kinds]
        # A bound on seq: SQLite then reads from its index and not the whole table.
        its = f"seq < ? AND {_ITS} AND NOT {_LOOK}"
        if other:
            marks = ", ".join("?" for _ in other)
            its += f" AND NOT EXISTS (SELECT 1 FROM rulings WHERE run_id = runs.id AND kind IN ({marks}))"
        sql = f"SELECT id FROM runs WHERE {its} ORDER BY seq DESC LIMIT ?"
        values = (2**62, principal, principal, *other, max(1, min(limit, MAX_PAGE)))
        return [row["id"] for row in self.db.all(sql, *values)]

    def list_runs(
        self, record: type[AnyRun], limit: int = 20, cursor: int | None = None
    ) -> tuple[list[AnyRun], int | None]:
        """Everybody's, newest first, and the cursor of the next page."""
        limit = max(1, min(limit, MAX_PAGE))
        before = cursor if cursor is not None else 2**62
        rows = self.db.all("SELECT seq, id, body FROM runs WHERE seq < ? ORDER BY seq DESC LIMIT ?", before, limit + 1)
        more = rows[limit - 1]["seq"] if len(rows) > limit else None
        return [self._run(record, row) for row in rows[:limit]], more

    def _run(self, record: type[AnyRun], row: sqlite3.Row) -> AnyRun:
        try:
            return record.model_validate_json(row["body"])
        except ValidationError as error:
            what = f"run {row['id']!r} is unreadable; its own copy is {self.run_dir(row['id']) / 'run.json'}"
            raise corrupt(self.db.path, what) from error


MAX_VERDICTS = 1000
LATEST = 5000  # rows that a chart or ranking considers, newest first
COLUMNS = ", ".join(VerdictRow.model_fields)
# Row by row through two unique indexes: a page looks up only its own rows, not every stored run.
_VISIBLE = (
    "(? IS NULL OR EXISTS (SELECT 1 FROM runs JOIN jobs ON jobs.id = runs.job_id"
    " WHERE runs.id = rulings.run_id AND jobs.principal = ?))"
)
_EXACT = {"chapter": "chapter", "target": "target", "verdict": "verdict", "goal": "goal", "preset": "preset"}
# All runs of a principal at once, from an index: cheaper if every row is counted.
_OWNED = "(? IS NULL OR run_id IN (SELECT runs.id FROM jobs JOIN runs ON runs.job_id = jobs.id WHERE principal = ?))"


class VerdictsTable:
    """Part of the store; rows are written by a trigger when a run is saved. Every method raises StoreError."""

    db: Database

    def list_verdicts(
        self, filters: VerdictFilter, limit: int = 50, cursor: int | None = None, principal: str | None = None
    ) -> tuple[list[VerdictRow], int | None]:
        """Newest first, with the cursor of the next page; principal: owner of the runs, None for all."""
        limit = max(1, min(limit, MAX_VERDICTS))
        where, values = _conditions(filters)
        where.append(_VISIBLE)
        values += [principal, principal]
        if cursor is not None:
            where.append("seq < ?")
            values.append(cursor)
        sql = f"SELECT {COLUMNS} FROM rulings WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ?"
        rows = self.db.all(sql, *values, limit + 1)
        more = rows[limit - 1]["seq"] if len(rows) > limit else None
        return [VerdictRow(**dict(row)) for row in rows[:limit]], more

    def latest_verdicts(self, filters: VerdictFilter, principal: str | None = None) -> list[VerdictRow]:
        """The newest matching verdict of each target by kind, device and preset; among the last 5,000 rows.

        By target, those of one target newest first.
        """
        where, values = _conditions(filters)
        condition = " AND ".join([*where, _VISIBLE])
        apart = "target, kind, device, preset"
        inner = f"SELECT seq, {apart} FROM rulings WHERE {condition} ORDER BY seq DESC LIMIT {LATEST}"
        newest = f"SELECT MAX(seq) FROM ({inner}) GROUP BY {apart}"
        sql = f"SELECT {COLUMNS} FROM rulings WHERE seq IN ({newest}) ORDER BY target, seq DESC"
        return [VerdictRow(**dict(row)) for row in self.db.all(sql, *values, principal, principal)]

    def count_verdicts(self, filters: VerdictFilter, principal: str | None = None) -> dict[str, int]:
        """Number of stored verdicts by verdict."""
        where, values = _conditions(filters)
        sql = f"SELECT verdict, COUNT(*) AS n FROM rulings WHERE {' AND '.join([*where, _OWNED])} GROUP BY verdict"
        return {row["verdict"]: row["n"] for row in self.db.all(sql, *values, principal, principal)}


def _conditions(filters: VerdictFilter) -> tuple[list[str], list[Any]]:
    """SQL conditions with a placeholder for each value; values are never part of the text."""
    where, values = ["1"], []
    for field, column in _EXACT.items():
        value = getattr(filters, field)
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if filters.kinds and set(filters.kinds) != set(ANY_KIND):
        where.append(f"kind IN ({', '.join('?' for _ in filters.kinds)})")
        values += [kind.value for kind in filters.kinds]
    if filters.confirmed:
        where.append("(verdict IN ('incorrect', 'invalid') OR (preset != ? AND coalesce(replicates, 2) != 1))")
        values.append(QUICK)
    if filters.device is not None:
        where.append("device LIKE ? ESCAPE '\\'")
        values.append(f"%{_escaped(filters.device)}%")
    if filters.run is not None:
        where.append("run_id = ?")
        values.append(filters.run)
    if filters.since is not None:
        where.append("created_at >= ?")
        values.append(filters.since)
    for word in filters.text:
        where.append("target LIKE ? ESCAPE '\\'")
        values.append(f"%{_escaped(word)}%")
    return where, values


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


AnyImport = TypeVar("AnyImport", bound=BaseModel)


class ImportDocument(Protocol):
    """A record that can be stored as an import."""

    @property
    def id(self) -> str: ...
    @property
    def imported_at(self) -> float: ...
    def model_dump_json(self) -> str: ...


class ImportsTable:
    """Part of the store. Every method raises StoreError."""

    db: Database

    def save_import(self, document: ImportDocument, principal: str) -> None:
        """Store an import; the same id of the same owner replaces the earlier one."""
        self.db.change(
            "INSERT OR REPLACE INTO imports (id, principal, imported_at, body) VALUES (?, ?, ?, ?)",
            *(document.id, principal, document.imported_at, document.model_dump_json()),
        )

    def list_imports(self, record: type[AnyImport], limit: int = 200, principal: str | None = None) -> list[AnyImport]:
        """Newest first; principal: the owner, None for everybody's."""
        sql = "SELECT id, body FROM imports WHERE (? IS NULL OR principal = ?) ORDER BY seq DESC LIMIT ?"
        imports = []
        for row in self.db.all(sql, principal, principal, limit):
            try:
                imports.append(record.model_validate_json(row["body"]))
            except ValidationError as error:
                raise corrupt(self.db.path, f"import {row['id']!r} is unreadable") from error
        return imports
