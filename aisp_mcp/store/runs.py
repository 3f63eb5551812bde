"""Runs: a row each, and the same document as run.json in the run's folder.

The store knows a run's id and time. The rest of the document is up to the caller's record class.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from aisp_mcp.store.connection import Database, corrupt
from aisp_mcp.store.files import folder_of, unknown_run, write_atomic
from aisp_mcp.store.records.run_kind import ANY_KIND, RunKind

MAX_PAGE = 200
NAMED = 1000  # newest runs searched for a name
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
# A run belongs to the owner of its job; without a principal all runs are visible.
_ITS = "(? IS NULL OR EXISTS (SELECT 1 FROM jobs WHERE jobs.id = runs.job_id AND jobs.principal = ?))"
_LOOK = "(job_id IS NULL AND json_extract(body, '$.kind') = 'gate')"  # further looks of a gate's run


class Document(Protocol):
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

    def save_run(self, run: Document, job_id: str | None) -> None:
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

    def relabel_run(self, run: Document) -> None:
        """Replace the document of a stored run; its job and its verdicts stay as they are."""
        body = run.model_dump_json()
        write_atomic(self.run_dir(run.id) / "run.json", body)
        self.db.change("UPDATE runs SET body = ? WHERE id = ?", body, run.id)

    def newest_runs(
        self, record: type[AnyRun], limit: int, before: int | None, principal: str | None
    ) -> list[tuple[AnyRun, int]]:
        """Runs with their position in storage order, newest first, from before the given position."""
        sql = f"SELECT seq, id, body FROM runs WHERE seq < ? AND {_ITS} ORDER BY seq DESC LIMIT ?"
        rows = self.db.all(sql, 2**62 if before is None else before, principal, principal, max(1, min(limit, MAX_PAGE)))
        return [(self._run(record, row), row["seq"]) for row in rows]

    def run_ids(self, limit: int = 20, principal: str | None = None, kinds: Sequence[RunKind] = ANY_KIND) -> list[str]:
        """Ids of runs, newest first; kinds: only of runs whose verdicts are of these kinds."""
        other = [kind.value for kind in RunKind if kind not in kinds]
        its = f"seq < ? AND {_ITS}"  # a bound on seq: SQLite then reads from its index and not the whole table
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
