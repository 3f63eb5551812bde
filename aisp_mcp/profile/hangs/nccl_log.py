"""Logs of NCCL and of PyTorch's watchdog: calls by rank, start-up that did not end, timeouts.

A log contains no times of operations. A rank is named by its global number if a line has it, else by its number in the
communicator, else as host:process. A process may have a communicator for each of its devices, and lines of several
processes may be interleaved: a communicator is identified by its process and its address, not by the start of the line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from aisp_mcp.profile.readers.text import clean

_PROCESS = r"(?P<host>[\w.\-<>]+):(?P<process>\d+):\d+ \[\d+\]"
_CALL = re.compile(
    _PROCESS + r".*? NCCL INFO (?P<name>\w+): opCount (?P<number>[0-9a-f]+) "
    r".*? comm (?P<comm>0x[0-9a-f]+) \[nranks=(?P<size>\d+)\](?:.* globalrank (?P<rank>\d+))?"
)
_INIT = re.compile(
    _PROCESS + r".*? NCCL INFO .*?comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) nranks (?P<size>\d+) .*?"
    r"(?:commId (?P<id>0x[0-9a-f]+) )?- Init (?P<phase>START|COMPLETE)"
)
_TIMEOUT = re.compile(
    r"(?:\[rank(?P<rank>\d+)\].*?)?\[(?:PG (?P<group>[^\]]*?) )?Rank (?P<local>\d+)\] Watchdog caught collective "
    r"operation timeout: WorkNCCL\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<name>\w+)(?:, NumelIn=(?P<count>\d+))?"
)
_STATUS = re.compile(
    r"(?:\[rank(?P<rank>\d+)\].*?)?\[PG (?P<group>[^\]]*?) ?Rank (?P<local>\d+)\].*?work: (?P<number>\d+), "
    r"last enqueued NCCL work: (?P<last>-?\d+), last completed NCCL work: (?P<done>-?\d+)"
)
_WARN = re.compile(r"NCCL WARN (?P<text>.+)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_MOST_LINES = 5_000_000


class LoggedCall(NamedTuple):
    """A call as its line names it. number: opCount."""

    number: int
    name: str


class Communicator(NamedTuple):
    """Ranks as the log names them. size: of the whole communicator."""

    name: str
    size: int
    begun: set[str]
    complete: set[str]
    calls: dict[str, list[LoggedCall]]

    @property
    def numbered(self) -> bool:
        """Return True if each call of a rank has its own number; with one device per thread, NCCL leaves them at 0."""
        return all(len({call.number for call in calls}) == len(calls) for calls in self.calls.values())


class Timeout(NamedTuple):
    """The report of one rank's watchdog."""

    rank: int
    group: str
    number: int | None
    name: str
    elements: int | None


class NcclLog(NamedTuple):
    """The used content of a log."""

    version: str | None
    communicators: list[Communicator]
    timeouts: list[Timeout]
    enqueued: dict[tuple[str, int], tuple[int, int]]  # group, rank → last enqueued, last completed
    talking: set[int]  # ranks with a line of PyTorch's
    warnings: dict[str, int]


def parse(lines: Iterable[str]) -> NcclLog:
    """Lines of one log or of several, in any order."""
    reader = _LogReader()
    for at, line in enumerate(lines):
        if at >= _MOST_LINES:
            break
        reader.take(line)
    return reader.log()


class _LogReader:
    def __init__(self) -> None:
        self.version: str | None = None
        self.ranks: dict[tuple[str, str], tuple[str, str | None]] = {}  # process, comm → rank, id
        self.hosts: dict[tuple[str, str], str] = {}
        self.begun: dict[tuple[str, str], int] = {}
        self.complete: set[tuple[str, str]] = set()
        self.calls: dict[tuple[str, str], list[LoggedCall]] = defaultdict(list)
        self.sizes: dict[tuple[str, str], int] = {}
        self.timeouts: dict[tuple[str, int], Timeout] = {}
        self.enqueued: dict[tuple[str, int], tuple[int, int]] = {}
        self.talking: set[int] = set()
        self.warnings: dict[str, int] = defaultdict(int)

    def take(self, line: str) -> None:
        line = line[:4000]
        if "opCount" in line and (hit := _CALL.search(line)):
            self._call(hit)
        elif " - Init " in line and (hit := _INIT.search(line)):
            self._init(hit)
        elif "Watchdog caught" in line and (hit := _TIMEOUT.search(line)):
            self._timeout(hit)
        elif "last enqueued" in line and (hit := _STATUS.search(line)):
            self._status(hit)
        elif "NCCL WARN" in line and (hit := _WARN.search(line)):
            self.warnings[clean(hit["text"], 160)] += 1
        elif "NCCL version" in line and (hit := _VERSION.search(line)):
            self.version = hit[1]
        if hit := re.search(r"\[rank(\d+)\]", line):
            self.talking.add(int(hit[1]))

    def _key(self, hit: re.Match[str]) -> tuple[str, str]:
        key = (hit["process"], hit["comm"])
        self.hosts.setdefault(key, f"{hit['host']}:{hit['process']}")
        return key

    def _call(self, hit: re.Match[str]) -> None:
        key = self._key(hit)
        self.sizes[key] = int(hit["size"])
        if hit["rank"]:
            self.ranks.setdefault(key, (hit["rank"], None))
        self.calls[key].append(LoggedCall(int(hit["number"], 16), hit["name"]))

    def _init(self, hit: re.Match[str]) -> None:
        key = self._key(hit)
        self.ranks[key] = (hit["rank"], hit["id"])
        self.sizes[key] = int(hit["size"])
        if hit["phase"] == "START":
            self.begun[key] = int(hit["size"])
        else:
            self.complete.add(key)

    def _timeout(self, hit: re.Match[str]) -> None:
        rank = int(hit["rank"] or hit["local"])
        number = int(hit["number"]) if hit["number"] else None
        elements = int(hit["count"]) if hit["count"] else None
        timeout = Timeout(rank, _group(hit["group"]), number, clean(hit["name"], 40), elements)
        self.timeouts.setdefault((timeout.name, rank), timeout)

    def _status(self, hit: re.Match[str]) -> None:
        rank = int(hit["rank"] or hit["local"])
        self.enqueued[_group(hit["group"]), rank] = (int(hit["last"]), int(hit["done"]))

    def log(self) -> NcclLog:
        """Communicators are joined by their id; without one, by size, if no process has two of that size."""
        keys = list(dict.fromkeys([*self.ranks, *self.calls]))
        sizes: dict[tuple[str, int], int] = defaultdict(int)
        for process, comm in keys:
            sizes[process, self.sizes[process, comm]] += 1
        joined: dict[str, Communicator] = {}
        for process, comm in keys:
            rank, unique = self.ranks.get((process, comm), (self.hosts[process, comm], None))
            size = self.sizes[process, comm]
            if unique is None and sizes[process, size] > 1:
                continue  # they cannot be matched across ranks
            name = unique or f"of {size} ranks"
            row = joined.setdefault(name, Communicator(name, size, set(), set(), {}))
            if (process, comm) in self.begun:
                row.begun.add(rank)
            if (process, comm) in self.complete:
                row.complete.add(rank)
            if calls := self.calls.get((process, comm)):
                row.calls.setdefault(rank, []).extend(calls)
        rows = sorted(joined.values(), key=lambda row: (-sum(map(len, row.calls.values())), -row.size, row.name))
        return NcclLog(
            self.version, rows, list(self.timeouts.values()), self.enqueued, self.talking, dict(self.warnings)
        )


def _group(text: str | None) -> str:
    """`ID 2 PG GUID 9` as 9, `1` and `0 (default_pg)` as they are."""
    return clean((text or "").rpartition("GUID ")[2].strip(), 80)
