"""Read result files as imports, and look up stored imports by id, label or path.

A file is read once, by the first reader that recognises its format.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import stat
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from aisp_mcp.errors import NotFound, UsageError
from aisp_mcp.runs.imports.readers.aiperf import AIPERF
from aisp_mcp.runs.imports.readers.asv import ASV
from aisp_mcp.runs.imports.readers.google_benchmark import GOOGLE_BENCHMARK
from aisp_mcp.runs.imports.readers.guidellm import GUIDELLM
from aisp_mcp.runs.imports.readers.hyperfine import HYPERFINE
from aisp_mcp.runs.imports.readers.llama_bench import LLAMA_BENCH
from aisp_mcp.runs.imports.readers.mlperf import MLPERF
from aisp_mcp.runs.imports.readers.nvbench import NVBENCH
from aisp_mcp.runs.imports.readers.pyperf import PYPERF
from aisp_mcp.runs.imports.readers.pytest_benchmark import PYTEST_BENCHMARK
from aisp_mcp.runs.imports.readers.serving import BENCH_SERVING
from aisp_mcp.runs.imports.readers.source import Reader, Source
from aisp_mcp.runs.imports.records import Contents, Figure, FigureHistory, Import, Imported, Line, Point
from aisp_mcp.server.context import Context

MAX_BYTES = 128 * 2**20
READERS: tuple[Reader, ...] = (
    HYPERFINE, PYPERF, PYTEST_BENCHMARK, GUIDELLM, NVBENCH, GOOGLE_BENCHMARK, ASV, BENCH_SERVING, AIPERF, LLAMA_BENCH,
    MLPERF,
)  # fmt: skip


def read(path: str, label: str | None, now: float) -> Import:
    """The import of a file. Raises NotFound NO_SUCH_FILE, UsageError BAD_RESULTS, TOO_LARGE or UNKNOWN_RESULTS."""
    where, data = _bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    _refuse(where, data)
    source = Source(where, _text(where, data))
    reader = _reader(source)
    contents = _contents(reader, source)
    return Import(
        id=f"imp_{digest[:12]}",
        format=reader.format,
        label=label or where.name,
        path=str(where),
        sha256=digest,
        imported_at=now,
        contents=contents,
    )


def raw_hint(format_name: str) -> str:
    """The hint how to make that tool record samples."""
    return next((reader.raw for reader in READERS if reader.format == format_name), "")


def _bytes(path: str) -> tuple[Path, bytes]:
    where = Path(path).expanduser()
    try:
        status = where.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("BAD_RESULTS", f"{path[:200]!r} is not a regular file.", "Give one result file.")
        if status.st_size > MAX_BYTES:
            size = f"{where.name!r} has {status.st_size:,} bytes, more than {MAX_BYTES:,}"
            raise UsageError("TOO_LARGE", f"{size}.", "Export fewer benchmarks, or leave out responses and prompts.")
        return where.resolve(), where.read_bytes()
    except (OSError, ValueError) as error:
        raise NotFound("NO_SUCH_FILE", f"No result file at {path[:200]!r}.", "Give a path on this machine.") from error


def _refuse(where: Path, data: bytes) -> None:
    """Raise UsageError BAD_RESULTS for a file without content, and for an archive."""
    if not data.strip():
        how = f"is empty: {len(data)} bytes" if not data else "contains only white space"
        raise UsageError(
            "BAD_RESULTS",
            f"{where.name!r} {how}.",
            "Its tool ended before it wrote, as hyperfine does if its first command fails.",
        )
    head = data[:300]
    if data.startswith(b"\x1f\x8b\x08"):
        with suppress(zlib.error):  # damaged: reported where it is read whole
            head = zlib.decompressobj(wbits=31).decompress(data[:4096], 300)
    if head.startswith(b"PK\x03\x04") or head[257:262] == b"ustar":
        kind = "a zip archive" if head.startswith(b"PK") else "a tar archive"
        raise UsageError("BAD_RESULTS", f"{where.name!r} is {kind}.", "Unpack it and give one result file.")


def _text(where: Path, data: bytes) -> str:
    if data.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(where) as stream:
                data = stream.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError("BAD_RESULTS", f"{where.name!r} is a damaged gzip file.", "Copy it again.") from error
        if len(data) > MAX_BYTES:
            raise UsageError("TOO_LARGE", f"{where.name!r} is larger than {MAX_BYTES:,} bytes once unpacked.")
    return data.decode("utf-8-sig", "replace")


def _reader(source: Source) -> Reader:
    for reader in READERS:
        if reader.accepts(source):
            return reader
    kind = "JSON" if source.objects else "a table" if source.table and len(source.table[0]) > 1 else "text"
    raise UsageError(
        "UNKNOWN_RESULTS",
        f"{source.path.name!r} is {kind}, but not a result file of a tool that can be read.",
        f"Readable: {', '.join(reader.format for reader in READERS)}. A profile goes to a tool of `aisp profile`.",
    )


def _contents(reader: Reader, source: Source) -> Contents:
    """The content of a file. Raises UsageError BAD_RESULTS for a file that only looks like the format."""
    try:
        contents = reader.read(source)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        message = f"{source.path.name!r} looks like a file of {reader.format}, but its content is not."
        raise UsageError("BAD_RESULTS", message, f"{type(error).__name__}: write the file again.") from error
    if not contents.figures:
        why = " ".join(contents.notes) or "It contains no measured value."
        raise UsageError("BAD_RESULTS", f"{source.path.name!r} of {reader.format} has no figures. {why}", None)
    return contents


MOST = 1000  # imports that a history considers, newest first
LINES = 8
STANDING = "measured elsewhere, not judged by aisp"


def stored(ctx: Context, limit: int = MOST) -> list[Import]:
    """Imports that the caller may see, newest first; none if nothing was ever stored."""
    if not (ctx.settings.home / "aisp.db").exists():  # reading does not create a store
        return []
    return ctx.store.list_imports(Import, limit, ctx.sees)


def find(ctx: Context, name: str) -> Import:
    """An import by id or label, the newest first; else the file at that path, which is read but not stored.

    Raises NotFound UNKNOWN_IMPORT, and the errors of reading.
    """
    known = stored(ctx)
    for imported in known:
        if name in (imported.id, imported.label):
            return imported
    try:
        return read(name, None, ctx.clock())
    except NotFound as error:
        near = difflib.get_close_matches(
            name, [word for imported in known for word in (imported.label, imported.id)], 3
        )
        hint = f"Did you mean {', '.join(near)}?" if near else "Give the path of a result file, or an id or label."
        message = f"No import and no file is named {name[:200]!r}."
        raise NotFound("UNKNOWN_IMPORT", message, hint, [("aisp_benchmark_imports", {})]) from error


def brief(imported: Import, lines: int = LINES) -> Imported:
    """An import as an answer."""
    contents = imported.contents
    return Imported(
        id=imported.id,
        sentence=_sentence(imported),
        format=imported.format,
        label=imported.label,
        standing=STANDING,
        machine=contents.machine,
        commit=contents.commit,
        measured_at=_utc(contents.measured_at) if contents.measured_at else None,
        figures=len(contents.figures),
        lines=[_line(figure) for figure in contents.figures[:lines]],
        notes=contents.notes,
    )


def _line(figure: Figure) -> Line:
    stated = figure.model_dump(include={"name", "metric", "value", "unit", "statistic"})
    return Line(**stated, samples=len(figure.samples), settings=figure.settings)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _sentence(imported: Import) -> str:
    figures = imported.contents.figures
    raw = sum(bool(figure.samples) for figure in figures)
    names = len({figure.name for figure in figures})
    samples = f"{raw} of them with raw samples" if raw else f"none with raw samples ({raw_hint(imported.format)})"
    count_text = "1 figure" if len(figures) == 1 else f"{len(figures)} figures"
    about = "1 benchmark" if names == 1 else f"{names} benchmarks"
    return f"{imported.label}: {count_text} of {about} from {imported.format}, {samples}; {STANDING}."


def histories(imports: list[Import], name: str, limit: int) -> list[FigureHistory]:
    """Figures whose name, metric or parameters contain the text, over all imports that have them, oldest first."""
    plain_name, by_key = name.lower(), dict[tuple[str, str, str], FigureHistory]()
    for imported in sorted(imports, key=_when):
        for figure in imported.contents.figures:
            if plain_name in " ".join(figure.key).lower():
                history = by_key.setdefault(
                    figure.key,
                    FigureHistory(
                        name=figure.name, metric=figure.metric, unit=figure.unit, better=figure.better,
                        settings=figure.settings, points=[],
                    ),
                )  # fmt: skip
                history.points.append(_point(imported, figure))
    return sorted(by_key.values(), key=lambda history: -len(history.points))[:limit]


def _when(imported: Import) -> float:
    return imported.contents.measured_at or imported.imported_at


def _point(imported: Import, figure: Figure) -> Point:
    about = imported.contents
    return Point(
        at=_utc(_when(imported)), import_id=imported.id, label=imported.label, machine=about.machine,
        commit=about.commit, value=figure.value,
    )  # fmt: skip
