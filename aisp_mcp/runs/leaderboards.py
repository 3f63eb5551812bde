"""Rankings over stored verdicts. Pure functions; only proven verdicts about a target count.

Ratios of different targets are not compared: a high one means that the baseline was slow. Candidates compete within
their target, and targets are ordered by the share of the machine's measured ceiling that their best candidate reaches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from aisp_mcp.store.records.verdict_row import OF_TARGETS, VerdictRow

PROVEN = ("faster", "slower", "same")


def counts_as_evidence(row: VerdictRow) -> bool:
    """Return True for a proven verdict on a candidate of the target: not provisional, and not from a gate
    or the like.
    """
    return row.verdict in PROVEN and not row.provisional and row.kind in OF_TARGETS


def in_order(rows: Iterable[VerdictRow]) -> list[VerdictRow]:
    """Verdicts of one target for its page: newest first, provisional ones after all others."""
    return sorted(rows, key=lambda row: (row.provisional, -row.seq))


def leaderboards(rows: Sequence[VerdictRow], limit: int = 20) -> dict[str, list[dict[str, Any]]]:
    """By goal: one row per target and device, its best candidate, the largest share of a ceiling first.

    Targets without a measured ceiling follow by name. variants: all ranked candidates of the target, best first.
    """
    boards: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (_, _, goal), candidates in _by_target(rows).items():
        boards[goal].append({**_entry(candidates[0]), "variants": [row.target for row in candidates]})
    return {goal: sorted(entries, key=_by_ceiling)[:limit] for goal, entries in boards.items()}


def _by_target(rows: Sequence[VerdictRow]) -> dict[tuple[str, str, str], list[VerdictRow]]:
    """(target, device, goal) → its candidates by the lower end of their interval, each with its newest verdict."""
    groups: dict[tuple[str, str, str], list[VerdictRow]] = defaultdict(list)
    for row in sorted(_newest(row for row in rows if row.ratio is not None), key=_lower_end, reverse=True):
        groups[row.benchmark or row.target, row.device or "unknown", row.goal].append(row)
    return groups


def _newest(rows: Iterable[VerdictRow]) -> list[VerdictRow]:
    """The newest verdict of each candidate on each device, whatever its preset, that counts as evidence."""
    counted = sorted(filter(counts_as_evidence, rows), key=lambda row: row.seq)
    return list({(row.target, row.device or "unknown"): row for row in counted}.values())


def _by_ceiling(entry: dict[str, Any]) -> tuple[float, str]:
    return -(entry["of_peak"] or 0.0), entry["target"]


def tradeoffs(rows: Iterable[VerdictRow]) -> list[dict[str, Any]]:
    """Time ratio and memory ratio of each verified variant, both above 1 if the candidate is better."""
    return [
        {
            **_entry(row),
            "memory_ratio": row.baseline_bytes / row.candidate_bytes,
            "time_ratio": row.baseline_s / row.candidate_s,
        }
        for row in _newest(rows)
        if row.baseline_bytes and row.candidate_bytes and row.baseline_s and row.candidate_s
    ]


def summary(counts: dict[str, int], latest: Sequence[VerdictRow]) -> dict[str, Any]:
    """Counts by verdict, targets and devices, and the largest proven gain on each device."""
    best: dict[str, VerdictRow] = {}
    for row in filter(counts_as_evidence, latest):
        device = row.device or "unknown"
        if row.verdict == "faster" and (device not in best or _lower_end(best[device]) < _lower_end(row)):
            best[device] = row
    return {
        "verdicts": counts,
        "rulings": sum(counts.values()),
        "targets": len({row.target for row in latest}),
        "devices": sorted({row.device or "unknown" for row in latest}),
        "best": {device: _entry(row) for device, row in best.items()},
    }


def _lower_end(row: VerdictRow) -> float:
    return row.low if row.low is not None else 0.0


def _entry(row: VerdictRow) -> dict[str, Any]:
    names = (
        *("target", "benchmark", "verdict", "ratio", "low", "high", "at_least", "of_peak", "noise_floor"),
        *("device", "preset", "run_id", "created_at"),
    )
    return {name: getattr(row, name) for name in names}
