"""Dumps of PyTorch's flight recorder, pickle or JSON, one per rank.

A dump lists the last calls of one rank, often only those that have not completed. Pickles are read in a child process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from aisp_mcp.profile.hangs.waiting import Dump, RankCall
from aisp_mcp.profile.readers.files import ProfileFile, bad, is_pickle
from aisp_mcp.profile.readers.kineto import load_json
from aisp_mcp.profile.readers.pickles import in_child
from aisp_mcp.profile.readers.text import clean

_RANK = re.compile(r"(?:rank[_-]?|_|-|^)(\d{1,6})(?:\.(?:json|pickle|pkl|bin))?$")
_PAIR = re.compile(r"(?:send|recv)\D*(\d+)\s*(?:->|<-)\s*(\d+)", re.I)
_MOST = 100_000  # records in one dump
_LIST = re.compile(r"\d+")


def read(files: list[ProfileFile]) -> list[Dump]:
    """In order of rank. Raises UsageError BAD_PROFILE for a file that is not a dump, or two of one rank."""
    pickles = [file for file in files if is_pickle(file.head)]
    dumps = _unpickled(pickles) if pickles else []
    for index, file in enumerate(files):
        if not is_pickle(file.head):
            dumps.append(dump(file.path.name, load_json(file), index))
    ranks = [row.rank for row in dumps]
    if len(set(ranks)) < len(ranks):
        raise bad(
            f"Several of the {len(ranks)} dumps name the same rank.",
            "Give one folder per incident, with file names that end in the rank, as PyTorch writes them.",
        )
    return sorted(dumps, key=lambda row: row.rank)


def _unpickled(files: list[ProfileFile]) -> list[Dump]:
    hint = "Give the files that TORCH_NCCL_DUMP_ON_TIMEOUT=1 wrote."
    return [Dump.model_validate(row) for row in json.loads(in_child(__name__, files, "a flight recorder dump", hint))]


def printed(pairs: Iterable[tuple[ProfileFile, Any]]) -> str:
    """The facts of dumps as JSON."""
    return json.dumps(
        [dump(file.path.name, top, index).model_dump(mode="json") for index, (file, top) in enumerate(pairs)]
    )


def dump(name: str, top: Any, index: int) -> Dump:
    """The facts of one dump. index: its rank if neither the file nor its name contains it. Raises UsageError
    BAD_PROFILE.
    """
    rows = top.get("entries") if isinstance(top, dict) else top
    known = isinstance(top, dict) and ("pg_config" in top or "pg_status" in top or "nccl_comm_state" in top)
    if not isinstance(rows, list) and not known:
        raise bad(f"{name!r} is not a flight recorder dump: it has no list 'entries'.", "Give one that PyTorch wrote.")
    entries = [row for row in (rows or [])[:_MOST] if isinstance(row, dict) and "profiling_name" in row]
    if not known and not entries:
        raise bad(f"{name!r} is not a flight recorder dump: no record has a 'profiling_name'.", "Give one of PyTorch.")
    top = top if isinstance(top, dict) else {}
    members = _groups(top.get("pg_config"))
    groups = {_label(group, ranks): ranks for group, ranks in members.items()}
    result = Dump(rank=_rank(name, top, index), records=len(entries), pending=[], groups=groups)
    for entry in entries:
        _record(entry, members, result)
    return result


def _rank(name: str, top: dict[str, Any], index: int) -> int:
    if isinstance(rank := top.get("rank"), int) and rank >= 0:
        return rank
    hit = _RANK.search(name)
    return int(hit[1]) if hit else index


def _groups(config: Any) -> dict[str, list[int]]:
    """The ranks of each group, which the dump gives as a list or as the text of one."""
    groups = {}
    for name, row in config.items() if isinstance(config, dict) else ():
        ranks = row.get("ranks") if isinstance(row, dict) else None
        numbers = _LIST.findall(ranks) if isinstance(ranks, str) else ranks if isinstance(ranks, list) else []
        groups[clean(name, 80)] = sorted({int(number) for number in numbers if str(number).isdigit()})
    return groups


def _label(group: str, ranks: list[int]) -> str:
    """A label that distinguishes groups with the same name but different members."""
    return f"{group} {ranks}" if ranks else group


def _record(entry: dict[str, Any], members: dict[str, list[int]], result: Dump) -> None:
    group = entry.get("process_group")
    name = clean(group[0] if isinstance(group, list | tuple) and group else entry.get("pg_id", "?"), 80)
    ranks = members.get(name, [])
    operation = clean(entry["profiling_name"], 80)
    pair = _PAIR.search(operation)
    keys = ("p2p_seq_id",) if pair else ("collective_seq_id", "seq_id")
    number = next((entry[key] for key in keys if isinstance(entry.get(key), int)), None)
    if number is None:
        return
    label = _label(name, ranks)
    if entry.get("state") == "completed":
        if not pair:
            result.completed[label] = max(number, result.completed.get(label, number))
        return
    result.pending.append(
        RankCall(
            group=label, number=number, operation=operation, peers=_peers(pair, ranks),
            elements=_elements(entry.get("input_sizes")), state=clean(entry.get("state", "scheduled"), 20),
        )
    )  # fmt: skip


def _peers(pair: re.Match[str] | None, ranks: list[int]) -> tuple[int, int] | None:
    """The two ranks in order: the name numbers them within the group."""
    if pair is None:
        return None
    ends = [ranks[int(at)] if int(at) < len(ranks) else int(at) for at in pair.groups()]
    return min(ends), max(ends)


def _elements(sizes: Any) -> int | None:
    """Number of elements of all inputs together."""
    if not isinstance(sizes, list):
        return None
    total = 0
    for shape in sizes:
        if not isinstance(shape, list) or not all(isinstance(length, int) for length in shape):
            return None
        product = 1
        for length in shape:
            product *= length
        total += product
    return total
