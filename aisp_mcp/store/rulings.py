"""Verdicts as rows with indexes: lists over ten thousand runs never parse a run's body."""

from __future__ import annotations

from typing import Any

from aisp_mcp.store.connection import Database
from aisp_mcp.store.records.ruling import Ruling, RulingFilter

MAX_PAGE = 1000
LATEST = 5000  # rows that a chart or ranking looks at, newest first
COLUMNS = ", ".join(Ruling.model_fields)
# Row by row through two unique indexes: a page looks up its own rows and not every run that is stored.
_VISIBLE = (
    "(? IS NULL OR EXISTS (SELECT 1 FROM runs JOIN jobs ON jobs.id = runs.job_id"
    " WHERE runs.id = rulings.run_id AND jobs.principal = ?))"
)
_EXACT = {"chapter": "chapter", "target": "target", "verdict": "verdict", "goal": "goal", "preset": "preset"}
# All runs of a principal at once, from an index: cheaper where every row is counted.
_OWNED = "(? IS NULL OR run_id IN (SELECT runs.id FROM jobs JOIN runs ON runs.job_id = jobs.id WHERE principal = ?))"


class RulingsTable:
    """Part of the store; rows are written by a trigger when a run is saved. Every method raises StoreError."""

    db: Database

    def list_rulings(
        self, wanted: RulingFilter, limit: int = 50, cursor: int | None = None, principal: str | None = None
    ) -> tuple[list[Ruling], int | None]:
        """Newest first, and the cursor of the next page; principal: whose, None for everybody's."""
        limit = max(1, min(limit, MAX_PAGE))
        where, values = _conditions(wanted)
        where.append(_VISIBLE)
        values += [principal, principal]
        if cursor is not None:
            where.append("seq < ?")
            values.append(cursor)
        sql = f"SELECT {COLUMNS} FROM rulings WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ?"
        rows = self.db.all(sql, *values, limit + 1)
        more = rows[limit - 1]["seq"] if len(rows) > limit else None
        return [Ruling(**dict(row)) for row in rows[:limit]], more

    def latest_rulings(self, wanted: RulingFilter, principal: str | None = None) -> list[Ruling]:
        """The newest ruling of each target on each device that matches, by target; among the last 5,000 rows."""
        where, values = _conditions(wanted)
        condition = " AND ".join([*where, _VISIBLE])
        inner = f"SELECT seq, target, device, preset FROM rulings WHERE {condition} ORDER BY seq DESC LIMIT {LATEST}"
        newest = f"SELECT MAX(seq) FROM ({inner}) GROUP BY target, device, preset"
        sql = f"SELECT {COLUMNS} FROM rulings WHERE seq IN ({newest}) ORDER BY target, seq"
        return [Ruling(**dict(row)) for row in self.db.all(sql, *values, principal, principal)]

    def count_rulings(self, wanted: RulingFilter, principal: str | None = None) -> dict[str, int]:
        """Number of rulings by verdict."""
        where, values = _conditions(wanted)
        sql = f"SELECT verdict, COUNT(*) AS n FROM rulings WHERE {' AND '.join([*where, _OWNED])} GROUP BY verdict"
        return {row["verdict"]: row["n"] for row in self.db.all(sql, *values, principal, principal)}


def _conditions(wanted: RulingFilter) -> tuple[list[str], list[Any]]:
    """SQL conditions with a mark for each value; values are never part of the text."""
    where, values = ["1"], []
    for field, column in _EXACT.items():
        value = getattr(wanted, field)
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if wanted.device is not None:
        where.append("device LIKE ? ESCAPE '\\'")
        values.append(f"%{_escaped(wanted.device)}%")
    if wanted.run is not None:
        where.append("run_id = ?")
        values.append(wanted.run)
    if wanted.since is not None:
        where.append("created_at >= ?")
        values.append(wanted.since)
    for word in wanted.text:
        where.append("target LIKE ? ESCAPE '\\'")
        values.append(f"%{_escaped(word)}%")
    return where, values


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
