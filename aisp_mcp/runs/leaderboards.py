"""Rankings over stored verdicts. Pure functions; only what a verdict proved counts as better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from aisp_mcp.store.records.verdict_row import VerdictRow

PROVEN = ("faster", "slower", "same")


def leaderboards(rows: Sequence[VerdictRow], limit: int = 20) -> dict[str, list[dict[str, Any]]]:
    """By goal: variants by the lower end of their interval, best first; unproven verdicts below all proven ones."""
    boards: dict[str, list[VerdictRow]] = defaultdict(list)
    for row in rows:
        if row.ratio is not None:
            boards[row.goal].append(row)
    return {
        goal: [_entry(row) for row in sorted(found, key=_rank, reverse=True)[:limit]] for goal, found in boards.items()
    }


def tradeoffs(rows: Iterable[VerdictRow]) -> list[dict[str, Any]]:
    """Time ratio and memory ratio of each verified variant, both above 1 where the candidate is better."""
    return [
        {
            **_entry(row),
            "memory_ratio": row.baseline_bytes / row.candidate_bytes,
            "time_ratio": row.baseline_s / row.candidate_s,
        }
        for row in rows
        if row.verdict in PROVEN and row.baseline_bytes and row.candidate_bytes and row.baseline_s and row.candidate_s
    ]


def summary(counts: dict[str, int], latest: Sequence[VerdictRow]) -> dict[str, Any]:
    """Counts by verdict, targets and devices, and the largest proven gain on each device."""
    best: dict[str, VerdictRow] = {}
    for row in latest:
        device = row.device or "unknown"
        if row.verdict == "faster" and (device not in best or _rank(best[device]) < _rank(row)):
            best[device] = row
    return {
        "verdicts": counts,
        "rulings": sum(counts.values()),
        "targets": len({row.target for row in latest}),
        "devices": sorted({row.device or "unknown" for row in latest}),
        "best": {device: _entry(row) for device, row in best.items()},
    }


def _rank(row: VerdictRow) -> tuple[bool, float]:
    return row.verdict in PROVEN, row.low if row.low is not None else 0.0


def _entry(row: VerdictRow) -> dict[str, Any]:
    keep = ("target", "verdict", "ratio", "low", "high", "noise_floor", "device", "preset", "run_id", "created_at")
    return {name: getattr(row, name) for name in keep}
