"""From a path to an import: the file is read once, by the first reader that recognises its format."""

from __future__ import annotations

import gzip
import hashlib
import stat
import zlib
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
from aisp_mcp.runs.imports.readers.pytest_benchmark import PYTEST_BENCHMARK
from aisp_mcp.runs.imports.readers.serving import BENCH_SERVING
from aisp_mcp.runs.imports.readers.source import Reader, Source
from aisp_mcp.runs.imports.records import Contents, Import

MAX_BYTES = 128 * 2**20
READERS: tuple[Reader, ...] = (
    HYPERFINE, PYTEST_BENCHMARK, GUIDELLM, NVBENCH, GOOGLE_BENCHMARK, ASV, BENCH_SERVING, AIPERF, LLAMA_BENCH, MLPERF
)  # fmt: skip


def read(path: str, label: str | None, now: float) -> Import:
    """The import of a file. Raises NotFound NO_SUCH_FILE, UsageError BAD_RESULTS, TOO_LARGE or UNKNOWN_RESULTS."""
    where, data = _bytes(path)
    digest = hashlib.sha256(data).hexdigest()
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
