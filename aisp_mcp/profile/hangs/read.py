"""One hang from dumps or logs, a file or a folder with those of all ranks, and the sentences about it.

Each sentence names the rows of its numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from aisp_mcp.profile.hangs import flight, nccl_log, waiting
from aisp_mcp.profile.hangs.nccl_log import Communicator, NcclLog, Timeout
from aisp_mcp.profile.hangs.waiting import Dump, Graph, Hang, Wait
from aisp_mcp.profile.readers.files import GZIP, MAX_TEXT, ProfileFile, bad, is_flight, is_nccl, look, too_large
from aisp_mcp.profile.readers.files import read as read_bytes
from aisp_mcp.profile.records import ProfileKind, Source, Statement

_MOST_FILES = 4096
_MOST_BYTES = 2 * 2**30


def in_folder(folder: Path) -> list[ProfileFile]:
    """Dumps of a folder, or logs of NCCL if it has no dump; empty for another folder. Raises AispError TOO_LARGE."""
    paths = sorted(path for path in islice(folder.iterdir(), _MOST_FILES) if path.is_file() and path.stat().st_size)
    heads = {path: _head(path) for path in paths}
    for matches in (is_flight, is_nccl):
        matching = [path for path, head in heads.items() if matches(head)]
        if sum(path.stat().st_size for path in matching) > _MOST_BYTES:
            raise too_large(f"The files in {folder.name!r} contain more than {_MOST_BYTES:,} bytes")
        if matching:
            return [look(path) for path in matching]
    return []


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(65_536)


def read(files: list[ProfileFile], kind: ProfileKind, path: Path) -> Hang:
    """kind: flight or nccl. Raises UsageError BAD_PROFILE."""
    source = _source(files, kind, path)
    if kind == "nccl":
        return _log(files, source)
    dumps = flight.read(files)
    graph = waiting.graph(dumps)
    single = len(dumps) == 1
    return Hang(
        source=source, ranks=len(dumps), opening=of_dumps(dumps, graph), diagnostics=_notes(dumps),
        held_up_by=[] if single else graph.roots, held_up=[] if single else graph.held_up,
        waits=[] if single else graph.waits,
    )  # fmt: skip


def _notes(dumps: list[Dump]) -> list[str]:
    known = {rank for dump in dumps for members in dump.groups.values() for rank in members}
    missing = sorted(known - {dump.rank for dump in dumps})
    return [f"Reader: there is no dump of {ranks(missing)}."] if missing else []


def _log(files: list[ProfileFile], source: Source) -> Hang:
    log = nccl_log.parse(line for file in files for line in _lines(file))
    ranks = {rank for row in log.communicators for rank in row.begun | row.complete | set(row.calls)}
    many = max(len(ranks), len(log.talking), len({row.rank for row in log.timeouts}))
    notes = [f"NCCL WARN, {times}: {text}" for text, times in list(log.warnings.items())[:5]]
    return Hang(source=source, ranks=many, opening=of_log(log), diagnostics=notes)


def _lines(file: ProfileFile) -> Iterator[str]:
    with file.path.open("rb") as stream:
        compressed = stream.read(2) == GZIP
    if compressed:
        yield from read_bytes(file, MAX_TEXT).decode("utf-8", "replace").splitlines()
        return
    with file.path.open(encoding="utf-8", errors="replace") as text:
        yield from iter(lambda: text.readline(65_536), "")


def _source(files: list[ProfileFile], kind: ProfileKind, path: Path) -> Source:
    if not files:
        raise bad(f"{path.name!r} contains no dump and no log.", "Give the folder with one dump per rank.")
    tool = "PyTorch flight recorder" if kind == "flight" else "NCCL"
    if len(files) == 1:
        return files[0].source(kind, tool, None)
    digest = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
    size = sum(file.size for file in files)
    return Source(path=str(path), sha256=digest, bytes=size, kind=kind, tool=tool)


_SHOWN = 16
_REASONS = {
    "no call": "whose {dumps} {have} no such call",
    "not finished": "which {have} not finished an earlier call of that group",
    "queued": "which {have} it queued behind an earlier call that has not finished",
    "no dump": "of which there is no dump",
    "other call": "which {are} in another call with the same number",
}


def of_dumps(dumps: list[Dump], graph: Graph) -> list[Statement]:
    """The ranks at the ends of the chains first, then the call in which most ranks are stuck."""
    pending = sum(len(dump.pending) for dump in dumps)
    if not pending:
        records = sum(dump.records for dump in dumps)
        text = (
            f"No call is pending in {_count(len(dumps), 'dump')} with {records:,} records: "
            "nothing was hanging at that time."
        )
        return [Statement(text=text, rows=["ranks"])]
    if all(call.operation.startswith("gloo:") for dump in dumps for call in dump.pending):
        return [_without_completion(dumps)]
    if len(dumps) == 1:
        return [_alone(dumps[0])]
    if not graph.waits:
        text = (
            f"All {len(dumps)} ranks are in the same calls ({pending:,} pending), and none waits for another to "
            "call: the network or a device is stuck, or the work is still running."
        )
        return [Statement(text=text, rows=["waits"])]
    names = ranks(graph.roots)
    verb = "waits" if len(graph.roots) == 1 else "wait"
    text = (
        f"Of {len(dumps)} dumps, {names} {verb} for nobody, and {_count(len(graph.held_up), 'rank')} "
        f"{'waits' if len(graph.held_up) == 1 else 'wait'} for {'it' if len(graph.roots) == 1 else 'them'}, "
        "directly or through others."
    )
    if _cycle(graph):
        text = (
            f"Of {len(dumps)} dumps, {names} wait for each other; {_count(len(graph.held_up), 'rank')} more for them."
        )
    lead = [Statement(text=text, rows=["held_up_by", "held_up"])]
    return [*lead, _wait(graph.waits, graph.roots), _advice(graph)]


def _without_completion(dumps: list[Dump]) -> Statement:
    """gloo never marks a call as completed, so only the calls that each rank made can be compared."""
    made = {dump.rank: {(c.group, c.peers, c.number): c.operation for c in dump.pending} for dump in dumps}
    text = "The records of gloo never say that a call has completed, so they do not show whether one is pending. "
    if len(dumps) == 1:
        text += f"Rank {dumps[0].rank} made {_count(len(dumps[0].pending), 'call')}; give the dumps of all ranks."
        return Statement(text=text, rows=["ranks"])
    keys = sorted({key for calls in made.values() for key in calls if key[1] is None}, key=lambda key: (key[0], key[2]))
    for group, peers, number in keys:
        names = {rank: calls.get((group, peers, number)) for rank, calls in made.items()}
        if len(set(names.values())) > 1:
            listed = "; ".join(f"rank {rank}: {name or 'no such call'}" for rank, name in sorted(names.items())[:8])
            text += f"The first call that differs is number {number} of group {group}: {listed}."
            return Statement(text=text, rows=["ranks"])
    text += f"All {len(dumps)} ranks made the same {_count(len(keys), 'call')}."
    return Statement(text=text, rows=["ranks"])


def _cycle(graph: Graph) -> bool:
    return any(set(wait.waiting) & set(graph.roots) for wait in graph.waits)


def _alone(dump: Dump) -> Statement:
    first = dump.pending[0]
    text = (
        f"Rank {dump.rank} has {_count(len(dump.pending), 'call')} that did not complete, the first of them "
        f"{first.operation}, number {first.number} of group {first.group} ({first.state}). Only the dumps of all ranks "
        "show which rank is late: give their folder."
    )
    return Statement(text=text, rows=["waits"])


def _wait(waits: list[Wait], roots: list[int]) -> Statement:
    """The call in which most ranks wait for one of the roots."""
    at = next(at for at, wait in enumerate(waits) if set(wait.awaited) & set(roots))
    wait = waits[at]
    few = len(wait.awaited) == 1
    reason = _REASONS[wait.reason].format(
        dumps="dump" if few else "dumps", have="has" if few else "have", are="is" if few else "are"
    )
    text = (
        f"{ranks(wait.waiting).capitalize()} {'waits' if len(wait.waiting) == 1 else 'wait'} in {wait.operation}, "
        f"number {wait.number} of group {wait.group}, for {ranks(wait.awaited)}, {reason}."
    )
    return Statement(text=text, rows=[f"waits[{at}]"])


def _advice(graph: Graph) -> Statement:
    final_waits = [wait for wait in graph.waits if set(wait.awaited) & set(graph.roots)]
    reasons = {wait.reason for wait in final_waits}
    who = ranks(graph.roots)
    if "other call" in reasons:
        text = f"To try first: compare the code paths of {who} with the others': the same number is a different call."
    elif "no dump" in reasons:
        text = f"To try first: find out whether the processes of {who} still live, and collect their dumps."
    elif reasons <= {"not finished", "queued"}:
        text = (
            f"To try first: look at the devices of {who}: their calls were queued and do not finish "
            "(`nvidia-smi -q -d ECC,PERFORMANCE`, `dmesg | grep -i xid`)."
        )
    else:
        text = (
            f"To try first: find out what {who} did instead of calling: "
            "`py-spy dump --pid PID --native` on their processes."
        )
    return Statement(text=text, rows=["waits"])


def of_log(log: NcclLog) -> list[Statement]:
    """Timeouts first, then calls that ranks have not reached, then start-up."""
    statements = _timeouts(log)
    for row in log.communicators:
        if row.calls:
            statements.append(_calls(row))
        elif row.begun - row.complete:
            missing = f"{len(row.begun - row.complete)} of the {len(row.begun)} ranks that began"
            text = f"Start-up of communicator {row.name} ({row.size} ranks): {missing} did not report its completion."
            statements.append(Statement(text=text, rows=["waits"]))
        if len(statements) >= 3:
            break
    if not statements:
        statements = [_nothing(log)]
    if log.warnings:
        text, times = max(log.warnings.items(), key=lambda item: item[1])
        statements.append(Statement(text=f"NCCL warns, {_count(times, 'time')}: {text}", rows=["diagnostics"]))
    return statements


def _timeouts(log: NcclLog) -> list[Statement]:
    """By operation and number: the ranks that reported it, and the other ranks in the log that did not."""
    groups: dict[tuple[str, int | None], list[Timeout]] = {}
    for row in log.timeouts:
        groups.setdefault((row.name, row.number), []).append(row)
    statements = []
    for (name, number), rows in sorted(groups.items(), key=lambda item: -len(item[1]))[:2]:
        reported = sorted({row.rank for row in rows})
        where = f", number {number}" if number is not None else ""
        text = f"{ranks(reported).capitalize()} {_verb(reported, 'reports', 'report')} a timeout of {name}{where}"
        silent = sorted(log.talking - {row.rank for row in log.timeouts})
        writes, does = _verb(silent, "writes", "write"), _verb(silent, "does", "do")
        text += f"; {ranks(silent)}, which also {writes} to the log, {does} not." if silent else "."
        late = _late(log, reported)
        if late:
            text += f" Last enqueued there: {late}."
        statements.append(Statement(text=text, rows=["waits"]))
    return statements


def _late(log: NcclLog, reported: list[int]) -> str:
    """Ranks of one group that had enqueued fewer calls than others, if they differ."""
    groups: dict[str, dict[int, int]] = {}
    for (group, rank), (last, _) in log.enqueued.items():
        if rank in reported:
            groups.setdefault(group, {})[rank] = last
    for rows in groups.values():
        if len(set(rows.values())) > 1:
            return ", ".join(f"rank {rank} {last}" for rank, last in sorted(rows.items())[:_SHOWN])
    return ""


def _calls(row: Communicator) -> Statement:
    """The progress of each rank, and a rank that called something else."""
    where = f"communicator {row.name}" if row.name.startswith("0x") else f"the communicator {row.name}"
    if row.numbered and (text := _different(row)):
        return Statement(text=f"In {where}, {text}.", rows=["waits"])
    reached = {rank: calls[-1].number if row.numbered else len(calls) for rank, calls in row.calls.items()}
    most = max(reached.values())
    late = sorted(rank for rank, number in reached.items() if number < most)
    unit = f"call {most:#x}" if row.numbered else _count(most, "call")
    text = f"In {where}, {len(reached)} of {row.size} ranks log calls; "
    if late:
        low = min(reached[rank] for rank in late)
        least = f"call {low:#x}" if row.numbered else _count(low, "call")
        text += f"the log of {_listed(late)} ends before that of the others ({least} at the earliest, {unit} there)."
    else:
        text += f"all of them reach {unit}."
    return Statement(text=text, rows=["waits"])


def _different(row: Communicator) -> str:
    """The first number that is a different collective on different ranks, with the ranks of each."""
    names: dict[int, dict[str, list[str]]] = {}
    for rank, calls in row.calls.items():
        for call in calls:
            if call.name not in ("Send", "Recv"):
                names.setdefault(call.number, {}).setdefault(call.name, []).append(rank)
    for number, by_name in sorted(names.items()):
        if len(by_name) > 1:
            calls_by_rank = "; ".join(
                f"{name} on {_listed(sorted(ranks_))}" for name, ranks_ in sorted(by_name.items())
            )
            return f"call {number:#x} differs between ranks: {calls_by_rank}"
    return ""


def _listed(names: list[str]) -> str:
    if all(name.isdigit() for name in names):
        return ranks(sorted(map(int, names)))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _nothing(log: NcclLog) -> Statement:
    whole = sum(len(row.complete) for row in log.communicators)
    text = f"The log of NCCL{' ' + log.version if log.version else ''} contains no call and no timeout"
    if whole:
        text += f"; start-up completed {whole} times, in {_count(len(log.communicators), 'communicator')}"
    return Statement(text=f"{text}. For calls, set NCCL_DEBUG_SUBSYS=COLL.", rows=["waits"])


def ranks(numbers: Iterable[int]) -> str:
    """`rank 3`, `ranks 1, 2 and 5`, with runs as `0-7`."""
    order = sorted(numbers)
    runs: list[list[int]] = []
    for number in order:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        text for run in runs for text in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    shown = parts[:_SHOWN]
    if len(parts) > _SHOWN:
        shown.append(f"{len(parts) - _SHOWN} more")
    if len(order) == 1:
        return f"rank {shown[0]}"
    return "ranks " + (" and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _verb(rows: list[int] | list[str], singular: str, plural: str) -> str:
    return singular if len(rows) == 1 else plural
