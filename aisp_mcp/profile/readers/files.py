"""Open a profile of unknown origin: detect its kind, limit its size, read its bytes."""

from __future__ import annotations

import hashlib
import re
import stat
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from aisp_mcp.errors import AispError, NotFound, UsageError
from aisp_mcp.profile.readers import foreign
from aisp_mcp.profile.records import ProfileKind, Source

MAX_TEXT = 256 * 2**20  # bytes of JSON or CSV, after decompression
MAX_FILE = 4 * 2**30  # bytes of files that are read in pieces: traces and databases
_CHUNK = 2**20
_CAPTURES = ("*.xplane.pb", "*.pt.trace.json", "*.pt.trace.json.gz")
_STEP = 2**24  # bytes inflated at a time
_SQLITE = b"SQLite format 3\x00"
GZIP = b"\x1f\x8b"
_TAG = re.compile(rb"\[[A-Za-z]*[\d,]*\][: <]")  # possible prefixes of a log line: [rank3]: or [1,0]<stdout>:


@dataclass(frozen=True)
class File:
    """A regular file with its hash and first (decompressed) bytes."""

    path: Path
    sha256: str
    size: int
    head: bytes

    @property
    def compressed(self) -> bool:
        return self.path.suffix == ".gz"

    def source(self, kind: ProfileKind, tool: str, version: str | None) -> Source:
        return Source(path=str(self.path), sha256=self.sha256, bytes=self.size, kind=kind, tool=tool, version=version)


def bad(message: str, hint: str | None = None) -> UsageError:
    """The error for a malformed file."""
    return UsageError(
        "BAD_PROFILE", message, hint or "Export the profile again; the file may be cut short or not a profile."
    )


def too_large(what: str) -> AispError:
    return AispError(
        "TOO_LARGE",
        f"{what}; reading it could exhaust this machine.",
        "Record a shorter window: a capture range (NVTX or cudaProfilerApi), fewer steps, or fewer kernels.",
    )


def look(path: str | Path, limit: int = MAX_FILE) -> File:
    """Hash the file and read its beginning. Raises NotFound NO_PROFILE, UsageError BAD_PROFILE, AispError TOO_LARGE."""
    where = Path(path).expanduser()
    try:
        where = _capture(where) if where.is_dir() else where
        status = where.stat()
    except (OSError, ValueError) as error:
        raise NotFound(
            "NO_PROFILE", f"No profile at {str(path)[:200]!r}.", "Give the path of a profile on this machine."
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise bad(f"{where.name!r} is not a regular file.", "Give the path of one profile file.")
    if status.st_size > limit:
        raise too_large(f"{where.name!r} has {status.st_size:,} bytes, more than {limit:,}")
    digest = hashlib.sha256()
    try:
        with where.open("rb") as stream:
            first = stream.read(_CHUNK)
            digest.update(first)
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise bad(f"Cannot read {where.name!r}: {error.strerror}.") from error
    head = _inflate_head(first) if first.startswith(GZIP) else first
    return File(where.resolve(), digest.hexdigest(), status.st_size, head[:4096])


def _capture(folder: Path) -> Path:
    """The only capture under a folder of TensorBoard. Raises UsageError BAD_PROFILE for none or several."""
    captures = [path for pattern in _CAPTURES for path in islice(folder.rglob(pattern), 100)]
    if len(captures) == 1:
        return captures[0]
    names = ", ".join(str(path.relative_to(folder)) for path in sorted(captures)[:5]) or "none"
    raise bad(
        f"{folder.name!r} is a folder, not a regular file; captures in it: {names}.",
        "Give one file; for several ranks, all of them to aisp_profile_hta.",
    )


def kind_of(file: File) -> ProfileKind:
    """Format of a file by its bytes, not its name. Raises UsageError BAD_PROFILE with a way to a readable format."""
    head, name = file.head, file.path.name
    if head.startswith(_SQLITE):
        return "nsys"
    _refuse_native(name)
    if is_pickle(head):
        return "flight" if foreign.is_flight(head) else "memory"
    if name.endswith(".xplane.pb") or (head[:1] == b"\n" and (b"/host:" in head[:32] or b"/device:" in head[:32])):
        return "xplane"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    json = text[:1] == b"{" or (text[:1] == b"[" and not _TAG.match(text))
    return _json_kind(text) if json else _text_kind(name, head, text)


def _refuse_native(name: str) -> None:
    if name.endswith(".nsys-rep") or name.endswith(".qdrep"):
        raise bad(
            f"{name!r} is nsys's own format.",
            "Run `nsys export --type sqlite FILE`, or aisp_profile_nsys with report=FILE.",
        )
    if name.endswith(".ncu-rep"):
        raise bad(
            f"{name!r} is ncu's own format.",
            "Run `ncu --import FILE --csv --page raw`, or aisp_profile_ncu with report=FILE.",
        )


def _text_kind(name: str, head: bytes, text: bytes) -> ProfileKind:
    if b"Kernel Name" in head and (b"Metric Name" in head or b'"ID"' in head):
        return "ncu"
    first = text.splitlines()[0] if text else b""
    if (b"Start_Timestamp" in first and b"Correlation_Id" in first) or b"BeginNs" in first:
        return "rocprof"
    if foreign.is_nccl(head):
        return "nccl"
    if (refusal := foreign.refusal(name, head, first)) is not None:
        raise bad(*refusal)
    if text and b"\x00" not in head and (first.rstrip().rsplit(b" ", 1)[-1].isdigit() or foreign.is_perf(head)):
        return "stacks"
    raise bad(f"{name!r} is not a profile that can be read here.", foreign.KNOWN)


def is_pickle(head: bytes) -> bool:
    """Return True for the beginning of a pickle of protocol 2 to 5."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _json_kind(text: bytes) -> ProfileKind:
    if b"speedscope" in text and text[:1] == b"{":
        return "stacks"
    if b'"rocprofiler-sdk-tool"' in text:
        return "rocprof"
    if foreign.is_flight(text):
        return "flight"
    if (refusal := foreign.json_refusal(text)) is not None:
        raise bad(*refusal)
    early = {
        b'"segments"': "memory",
        b'"device_traces"': "memory",
        b'"traceEvents"': "kineto",
        b'"schemaVersion"': "kineto",
    }
    kinds = sorted((at, kind) for key, kind in early.items() if (at := text.find(key)) >= 0)
    kind = kinds[0][1] if kinds else "kineto"
    return "memory" if kind == "memory" else "kineto"


def read(file: File, limit: int = MAX_TEXT) -> bytes:
    """All bytes, decompressed if they are gzip. Raises AispError TOO_LARGE before the limit is exceeded."""
    if file.size > limit:
        raise too_large(f"{file.path.name!r} has {file.size:,} bytes, more than {limit:,}")
    data = file.path.read_bytes()
    return inflate(data, limit) if data.startswith(GZIP) else data


def inflate(data: bytes, limit: int) -> bytes:
    """Gunzip, all members, never more than limit bytes."""
    out = bytearray()
    rest = data
    try:
        while rest.startswith(GZIP):
            decompressor = zlib.decompressobj(wbits=31)
            while rest and not decompressor.eof:
                out += decompressor.decompress(rest, _STEP)
                rest = decompressor.unconsumed_tail
                if len(out) > limit:
                    raise too_large(f"The decompressed profile has more than {limit:,} bytes")
            if not decompressor.eof:
                raise bad("The gzip file is cut short.")
            rest = decompressor.unused_data.lstrip(b"\x00")
    except zlib.error as error:
        raise bad("The gzip file is damaged.") from error
    return bytes(out)


def _inflate_head(first: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(first, 4096)
    except zlib.error as error:
        raise bad("The gzip file is damaged.") from error
