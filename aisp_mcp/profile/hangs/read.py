"""One hang from dumps or logs: a file, or a folder with those of all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from aisp_mcp.profile.hangs import flight, nccl_log, waiting, words
from aisp_mcp.profile.hangs.records import Dump, Hang
from aisp_mcp.profile.readers.files import GZIP, MAX_TEXT, File, bad, look, too_large
from aisp_mcp.profile.readers.files import read as read_bytes
from aisp_mcp.profile.readers.foreign import is_flight, is_nccl
from aisp_mcp.profile.records import ProfileKind, Source

_MOST_FILES = 4096
_MOST_BYTES = 2 * 2**30


def in_folder(folder: Path) -> list[File]:
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


def read(files: list[File], kind: ProfileKind, path: Path) -> Hang:
    """kind: flight or nccl. Raises UsageError BAD_PROFILE."""
    source = _source(files, kind, path)
    if kind == "nccl":
        return _log(files, source)
    dumps = flight.read(files)
    graph = waiting.graph(dumps)
    single = len(dumps) == 1
    return Hang(
        source=source, ranks=len(dumps), opening=words.of_dumps(dumps, graph), diagnostics=_notes(dumps),
        held_up_by=[] if single else graph.roots, held_up=[] if single else graph.held_up,
        waits=[] if single else graph.waits,
    )  # fmt: skip


def _notes(dumps: list[Dump]) -> list[str]:
    known = {rank for dump in dumps for members in dump.groups.values() for rank in members}
    missing = sorted(known - {dump.rank for dump in dumps})
    return [f"Reader: there is no dump of {words.ranks(missing)}."] if missing else []


def _log(files: list[File], source: Source) -> Hang:
    log = nccl_log.parse(line for file in files for line in _lines(file))
    ranks = {rank for row in log.communicators for rank in row.begun | row.complete | set(row.calls)}
    many = max(len(ranks), len(log.talking), len({row.rank for row in log.timeouts}))
    notes = [f"NCCL WARN, {times}: {text}" for text, times in list(log.warnings.items())[:5]]
    return Hang(source=source, ranks=many, opening=words.of_log(log), diagnostics=notes)


def _lines(file: File) -> Iterator[str]:
    with file.path.open("rb") as stream:
        compressed = stream.read(2) == GZIP
    if compressed:
        yield from read_bytes(file, MAX_TEXT).decode("utf-8", "replace").splitlines()
        return
    with file.path.open(encoding="utf-8", errors="replace") as text:
        yield from iter(lambda: text.readline(65_536), "")


def _source(files: list[File], kind: ProfileKind, path: Path) -> Source:
    if not files:
        raise bad(f"{path.name!r} contains no dump and no log.", "Give the folder with one dump per rank.")
    tool = "PyTorch flight recorder" if kind == "flight" else "NCCL"
    if len(files) == 1:
        return files[0].source(kind, tool, None)
    digest = hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
    size = sum(file.size for file in files)
    return Source(path=str(path), sha256=digest, bytes=size, kind=kind, tool=tool)
