"""Verdicts as rows with indexes, so that lists over ten thousand runs never parse a run's body."""

from __future__ import annotations

from typing import Any

from aisp_mcp.store.connection import Database
from aisp_mcp.store.records.run_kind import ANY_KIND
from aisp_mcp.store.records.verdict_row import QUICK, VerdictFilter, VerdictRow

MAX_PAGE = 1000
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
        limit = max(1, min(limit, MAX_PAGE))
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
