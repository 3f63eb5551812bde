"""Single numbers measured on this machine, such as the bandwidth of a device: the ceilings for comparisons."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from pydantic import Field

from aisp_mcp.records import Record
from aisp_mcp.store.connection import Database


class Ceiling(Record):
    """The best value of its kind seen on a device; measured_at is UTC seconds since the epoch."""

    kind: str
    device: str
    value: float
    unit: str
    measured_at: float
    detail: dict[str, Any] = Field(default_factory=dict)


class MeasurementsTable:
    """Part of the store. Every method raises StoreError."""

    db: Database

    def put_measurement(self, kind: str, device: str, value: float, unit: str, detail: dict[str, Any]) -> None:
        """Store a number. kind: the measured quantity, such as "copy_bandwidth"; device: a GPU's UUID or "cpu"; higher
        is better.
        """
        self.db.change(
            "INSERT INTO measurements (kind, device, value, unit, detail, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            *(kind, device, value, unit, json.dumps(detail), time.time()),
        )

    def best_measurement(self, kind: str, device: str) -> Ceiling | None:
        """The highest value seen of that kind on that device, or None."""
        row = self.db.first(
            "SELECT * FROM measurements WHERE kind = ? AND device = ? ORDER BY value DESC LIMIT 1", kind, device
        )
        return None if row is None else _ceiling(row)

    def newest_measurements(self, prefix: str, limit: int = 200) -> list[Ceiling]:
        """The newest value of each kind with this prefix, on each device; newest first."""
        newest = "SELECT MAX(seq) FROM measurements WHERE kind >= ? AND kind < ? GROUP BY kind, device"
        rows = self.db.all(
            f"SELECT * FROM measurements WHERE seq IN ({newest}) ORDER BY seq DESC LIMIT ?",
            *(prefix, prefix + "\U0010ffff", limit),
        )
        return [_ceiling(row) for row in rows]

    def list_measurements(self, prefix: str, limit: int = 1000) -> list[Ceiling]:
        """Every value whose kind has this prefix, newest first."""
        sql = "SELECT * FROM measurements WHERE kind >= ? AND kind < ? ORDER BY seq DESC LIMIT ?"
        return [_ceiling(row) for row in self.db.all(sql, prefix, prefix + "\U0010ffff", limit)]


def _ceiling(row: sqlite3.Row) -> Ceiling:
    values = {name: row[name] for name in ("kind", "device", "value", "unit")}
    return Ceiling(**values, measured_at=row["created_at"], detail=json.loads(row["detail"]))
