"""Calls of each rank, from dumps and logs, and waits between ranks: edges from calls that a rank has not finished."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import Field

from aisp_mcp.profile.records import Source, Statement
from aisp_mcp.records import Record

Reason = Literal["no call", "not finished", "queued", "no dump", "other call"]


class RankCall(Record):
    """A call that has not completed. number: its position among the calls of its group, or of a pair for
    send and recv.
    """

    group: str
    number: int
    operation: str
    peers: tuple[int, int] | None = Field(default=None, description="Of a send or recv: the two ranks.")
    elements: int | None = None
    state: str = "scheduled"


class Dump(Record):
    """The calls of one rank, pending ones in their order. completed: the last such call per group."""

    rank: int
    records: int
    pending: list[RankCall]
    completed: dict[str, int] = Field(default_factory=dict)
    groups: dict[str, list[int]] = Field(default_factory=dict, description="Members by name, where they are known.")


class Wait(Record):
    """Ranks that are stuck in one call, and those that it waits for. group: name, with its members if known."""

    waiting: list[int]
    awaited: list[int]
    operation: str
    group: str
    number: int
    reason: Reason = Field(
        description="no call: none of this number. not finished: one before it in the group. queued: behind another."
    )


class Hang(Record):
    """held_up_by: ranks that others wait for, and that wait for none themselves. held_up: ranks that wait for them."""

    source: Source
    ranks: int
    held_up_by: list[int] = Field(default_factory=list)
    held_up: list[int] = Field(default_factory=list)
    waits: list[Wait] = Field(default_factory=list)
    opening: list[Statement] = Field(default_factory=list)
    diagnostics: list[str] = Field(default_factory=list)


_BY_NAME = {"all_reduce", "allreduce"}  # collectives whose ranks must pass the same number of elements


class Graph(NamedTuple):
    """waits: by call. roots: ranks that others wait for, and that wait for none, or only for each other."""

    waits: list[Wait]
    roots: list[int]
    held_up: list[int]


def graph(dumps: list[Dump]) -> Graph:
    """For each rank, the first unfinished call in each group, because later ones are queued after it.

    A rank also waits for another one that has queued the same call after an older call.
    """
    edges: dict[tuple[str, int, str, Reason, tuple[int, ...]], set[int]] = defaultdict(set)
    by_rank = {dump.rank: dump for dump in dumps}
    first = {dump.rank: _first(dump.pending) for dump in dumps}
    members = _members(dumps)
    for rank, calls in first.items():
        for call in calls.values():
            for reason, awaited in _awaited(rank, call, first, by_rank, members):
                edges[call.group, call.number, call.operation, reason, tuple(sorted(awaited))].add(rank)
    waits = [
        Wait(waiting=sorted(ranks), awaited=list(awaited), operation=name, group=group, number=number, reason=reason)
        for (group, number, name, reason, awaited), ranks in edges.items()
    ]
    waits.sort(key=lambda wait: (-len(wait.waiting), wait.group, wait.number, wait.awaited))
    roots = _roots(waits)
    return Graph(waits, roots, _reaching(waits, roots))


def _first(calls: list[RankCall]) -> dict[tuple[str, tuple[int, int] | None], RankCall]:
    """The first call by group, and by pair of ranks for send and recv."""
    calls_by_group: dict[tuple[str, tuple[int, int] | None], RankCall] = {}
    for call in calls:
        key = (call.group, call.peers)
        if key not in calls_by_group or call.number < calls_by_group[key].number:
            calls_by_group[key] = call
    return calls_by_group


def _members(dumps: list[Dump]) -> dict[str, set[int]]:
    """As configured; for groups without a configuration, the ranks that have a record of the group."""
    members: dict[str, set[int]] = defaultdict(set)
    for dump in dumps:
        for group, ranks in dump.groups.items():
            members[group] |= set(ranks) or {dump.rank}
        for group in [call.group for call in dump.pending] + list(dump.completed):
            if not dump.groups.get(group):
                members[group].add(dump.rank)
    return members


def _awaited(
    rank: int,
    call: RankCall,
    first: dict[int, dict[tuple[str, tuple[int, int] | None], RankCall]],
    by_rank: dict[int, Dump],
    members: dict[str, set[int]],
) -> Iterable[tuple[Reason, set[int]]]:
    """The ranks that this call of this rank waits for, by the reason."""
    awaited: dict[Reason, set[int]] = defaultdict(set)
    for other in (set(call.peers) if call.peers else members[call.group]) - {rank}:
        if (dump := by_rank.get(other)) is None:
            awaited["no dump"].add(other)
            continue
        oldest = first[other].get((call.group, call.peers))
        same = [c for c in dump.pending if (c.group, c.peers, c.number) == (call.group, call.peers, call.number)]
        if oldest is not None and oldest.number < call.number:
            awaited["not finished"].add(other)
        elif same and _differ(call, same[0]):
            awaited["other call"].add(other)
        elif same and call == by_rank[rank].pending[0] and same[0] != dump.pending[0]:
            awaited["queued"].add(other)
        elif oldest is None and (call.peers or dump.completed.get(call.group, -1) < call.number):
            awaited["no call"].add(other)
    return awaited.items()


def _differ(call: RankCall, other: RankCall) -> bool:
    if call.peers:
        return False
    if call.operation != other.operation:
        return True
    plain = call.operation.rpartition(":")[2].lower()
    return plain in _BY_NAME and None not in (call.elements, other.elements) and call.elements != other.elements


def _roots(waits: list[Wait]) -> list[int]:
    """Ends of the chains: every rank reachable from them leads back to them."""
    after: dict[int, set[int]] = defaultdict(set)
    for wait in waits:
        for rank in wait.waiting:
            after[rank] |= set(wait.awaited)
    awaited = {rank for wait in waits for rank in wait.awaited}
    reach = {rank: _reach(rank, after) for rank in awaited}
    return sorted(rank for rank in awaited if all(rank in reach[other] for other in reach[rank] if other != rank))


def _reach(rank: int, after: dict[int, set[int]]) -> set[int]:
    reached: set[int] = set()
    rest = [rank]
    while rest:
        for other in after.get(rest.pop(), ()):
            if other not in reached:
                reached.add(other)
                rest.append(other)
    return reached


def _reaching(waits: list[Wait], roots: list[int]) -> list[int]:
    reaching, grown = set(roots), True
    while grown:
        more = {rank for wait in waits if reaching.intersection(wait.awaited) for rank in wait.waiting} - reaching
        grown = bool(more)
        reaching |= more
    return sorted(reaching - set(roots))
