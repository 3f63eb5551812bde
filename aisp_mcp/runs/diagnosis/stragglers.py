"""Ranks that arrive late at collectives, found by durations, so the clocks of the ranks need not agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from aisp_mcp.records import Record

MIN_SHARE = 0.5  # a rank is named only if it is last at more than this share of the collectives
MIN_WAIT = 0.01  # of the time in collectives: shorter waits are not due to a straggler
DEFINITION = (
    "The k-th call of a collective is the same event on every rank. The rank in which it is shortest arrived last: the "
    "others' longer durations are waiting. wait_ns: sum over calls of duration minus the shortest one of all ranks. A "
    "rank is named when it is last at most calls and the others wait twice as long as it does, and 1 % of the time."
)


class Call(NamedTuple):
    """One collective call on one rank; calls are ordered by start."""

    key: str
    duration_ns: int


class RankWait(Record):
    """One rank."""

    rank: int
    calls: int
    last_at: int = Field(description="Calls in which it arrived last and therefore spent the least time.")
    wait_ns: int = Field(description="Waiting for later ranks inside collectives.")


class Stragglers(Record):
    """All ranks. slowest: the rank that the others wait for, None if there is no single one."""

    matched: int
    unmatched: int = Field(description="Calls that not every rank made.")
    ranks: list[RankWait]
    slowest: int | None
    sentence: str


def stragglers(ranks: Sequence[tuple[int, Sequence[Call]]]) -> Stragglers | None:
    """Find the rank that others wait for. ranks: (rank, its calls). None with fewer than two ranks or without matching
    calls.
    """
    if len(ranks) < 2:
        return None
    tables = [_numbered(calls) for _, calls in ranks]
    shared = set(tables[0]).intersection(*tables[1:])
    if not shared:
        return None
    waits, last = [0] * len(ranks), [0] * len(ranks)
    for key in shared:
        durations = [table[key] for table in tables]
        shortest = min(durations)
        if durations.count(shortest) == 1:
            last[durations.index(shortest)] += 1
        for index, duration in enumerate(durations):
            waits[index] += duration - shortest
    rows = [
        RankWait(rank=rank, calls=len(calls), last_at=last[at], wait_ns=waits[at])
        for at, (rank, calls) in enumerate(ranks)
    ]
    top = min(rows, key=lambda row: (row.wait_ns, -row.last_at))
    others = sum(row.wait_ns for row in rows if row.rank != top.rank)
    mean = others / (len(rows) - 1)
    spent = sum(table[key] for table in tables for key in shared) / len(rows)
    named = top.last_at > MIN_SHARE * len(shared) and mean > 2 * top.wait_ns and mean > MIN_WAIT * spent
    slowest = top.rank if named else None
    sentence = (
        f"rank {slowest} arrives last at {top.last_at} of {len(shared)} collectives; the others wait {others} ns for it"
        if slowest is not None
        else f"no rank is late: no rank is notably waited for at {len(shared)} collectives"
    )
    return Stragglers(
        matched=len(shared),
        unmatched=sum(len(set(table) - shared) for table in tables),
        ranks=rows,
        slowest=slowest,
        sentence=sentence,
    )


def _numbered(calls: Sequence[Call]) -> dict[tuple[str, int], int]:
    """(key, how many of that key came before) → nanoseconds."""
    seen: dict[str, int] = {}
    numbered = {}
    for call in calls:
        number = seen.get(call.key, 0)
        seen[call.key] = number + 1
        numbered[call.key, number] = call.duration_ns
    return numbered
