"""Open a profile of unknown origin: detect its kind, limit its size, read its bytes.

Formats that are recognised but not read are refused, each with the tool that converts it to a readable one.
"""

from __future__ import annotations

import hashlib
import re
import stat
import zlib
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from aisp_mcp.errors import AispError, NotFound, UsageError
from aisp_mcp.profile.records import ProfileKind, Source

MAX_TEXT = 256 * 2**20  # bytes of JSON or CSV, after decompression
MAX_FILE = 4 * 2**30  # bytes of files that are read in pieces: traces and databases
_CHUNK = 2**20
_CAPTURES = ("*.xplane.pb", "*.pt.trace.json", "*.pt.trace.json.gz")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_STEP = 2**24  # bytes inflated at a time
_SQLITE = b"SQLite format 3\x00"
GZIP = b"\x1f\x8b"
_TAG = re.compile(rb"\[[A-Za-z]*[\d,]*\][: <]")  # possible prefixes of a log line: [rank3]: or [1,0]<stdout>:


@dataclass(frozen=True)
class ProfileFile:
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


def look(path: str | Path, limit: int = MAX_FILE) -> ProfileFile:
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
    return ProfileFile(where.resolve(), digest.hexdigest(), status.st_size, head[:4096])


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


def kind_of(file: ProfileFile) -> ProfileKind:
    """Format of a file by its bytes, not its name. Raises UsageError BAD_PROFILE with a way to a readable format."""
    head, name = file.head, file.path.name
    if head.startswith(_SQLITE):
        return "nsys"
    refuse_container(name, file.size, head)
    _refuse_native(name)
    if is_pickle(head):
        return "flight" if is_flight(head) else "memory"
    if name.endswith(".xplane.pb") or (head[:1] == b"\n" and (b"/host:" in head[:32] or b"/device:" in head[:32])):
        return "xplane"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    json = (text[:1] == b"{" and not _PSTATS.match(text)) or (text[:1] == b"[" and not _TAG.match(text))
    return _json_kind(text) if json else _text_kind(name, head, text)


def refuse_container(name: str, size: int, head: bytes) -> None:
    """Raise UsageError BAD_PROFILE for a file without content, and for an archive."""
    if not size:
        raise bad(f"{name!r} is empty: 0 bytes.", "Its writer ended before it wrote; record again.")
    if not head.strip(_BLANK):
        raise bad(f"{name!r} contains no text in its first {len(head):,} bytes.", "Record again.")
    if (archive := archive_of(head)) is not None:
        raise bad(f"{name!r} is {archive}.", "Unpack it and give one file, or the folder.")


def archive_of(head: bytes) -> str | None:
    """The kind of archive by its first, decompressed bytes."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "a zip archive"
    return "a tar archive" if head[257:262] == b"ustar" else None


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
    if is_nccl(head):
        return "nccl"
    if (refusal := foreign_refusal(name, head, first)) is not None:
        raise bad(*refusal)
    if text and b"\x00" not in head and (first.rstrip().rsplit(b" ", 1)[-1].isdigit() or is_perf(head)):
        return "stacks"
    raise bad(f"{name!r} is not a profile that can be read here.", READABLE)


def is_pickle(head: bytes) -> bool:
    """Return True for the beginning of a pickle of protocol 2 to 5."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _json_kind(text: bytes) -> ProfileKind:
    if text[:1] == b"{" and (b"speedscope" in text or is_firefox(text)):
        return "stacks"
    if b'"rocprofiler-sdk-tool"' in text:
        return "rocprof"
    if is_flight(text):
        return "flight"
    if (refusal := foreign_json_refusal(text)) is not None:
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


def read(file: ProfileFile, limit: int = MAX_TEXT) -> bytes:
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


_FIREFOX = re.compile(rb'\{\s*"meta"\s*:\s*\{\s*"(?:categories|interval|version|debug|extensions|product|stackwalk)"')
_PPROF = re.compile(rb"\n[\x02-\x0c]\x08", re.S)  # the first message, a type of values, starts with a number
_PSTATS = re.compile(rb"[\x7b\xfb][\x29\xa9]\x03", re.S)  # a marshalled dictionary whose keys are triples
READABLE = (
    "Known: nsys SQLite, torch.profiler and JAX traces (JSON, xplane), rocprofv3 CSV and JSON, ncu CSV, memory "
    "snapshots (pickle, JSON), speedscope, samply, collapsed stacks, perf script, flight recorder dumps, logs of NCCL."
)
# `python  4012/4013 [002]  1234.567890:  10101010 cycles:u:`; the thread, the processor and the period may be missing.
PERF_SAMPLE = re.compile(r"^(\S.*?)\s+(-?\d+)(?:/(-?\d+))?\s+(?:\[\d+\]\s+)?\d+\.\d+:\s*(.*)$")
PERF_UNTIMED = re.compile(r"^(\S.*?)\s+(-?\d+)(?:/(-?\d+))?\s+(?:\[\d+\]\s+)?((?:\d+\s+)?[A-Za-z][\w:./=,-]*:\s*)$")
_PERF_ADDRESS = re.compile(r"^\s+[0-9a-f]{4,}\s+\S")
_PERF_COMMENT = re.compile(rb"^# (?:perf version|cmdline|captured on|=====)", re.M)


def is_perf(head: bytes) -> bool:
    """Return True if the first line that is not a comment is a sample of `perf script`, with or without its time."""
    lines = head.decode("utf-8", "replace").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return bool(PERF_SAMPLE.match(first)) or _PERF_COMMENT.search(head) is not None or _untimed(head)


def _untimed(text: bytes) -> bool:
    """Return True for `python  4012 cycles:u:` and an address below it: a sample of perf without its time."""
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if not line.startswith("#")]
    pairs = pairwise(lines)
    return any(
        PERF_UNTIMED.match(line) and not PERF_SAMPLE.match(line) and _PERF_ADDRESS.match(after)
        for line, after in islice(pairs, 10)
    )


def is_flight(head: bytes) -> bool:
    """Return True for a dump of PyTorch's flight recorder, pickle or JSON."""
    if b"profiling_name" in head and b"seq_id" in head:
        return True
    trace = any(mark in head for mark in (b"schemaVersion", b"traceEvents", b"deviceProperties", b"distributedInfo"))
    return not trace and any(mark in head for mark in (b"pg_config", b"pg_status", b"nccl_comm_state"))


def is_firefox(head: bytes) -> bool:
    """Return True for a profile of Firefox or samply, which starts with its metadata."""
    return b'"preprocessedProfileVersion"' in head or _FIREFOX.match(head) is not None


def is_nccl(head: bytes) -> bool:
    """Return True if a line of NCCL, or of PyTorch's watchdog, is among the first."""
    return any(
        mark in head for mark in (b"NCCL INFO", b"NCCL WARN", b"Watchdog caught collective", b"ProcessGroupNCCL")
    )


def foreign_refusal(name: str, head: bytes, first: bytes) -> tuple[str, str] | None:
    """(format, remedy) for a text or binary format that is known but not read."""
    rows = (
        (head.startswith((b"PERFILE2", b"PERFFILE")), "perf's own format",
         "Run `perf script -F comm,pid,tid,time,event,ip,sym -i FILE`; its output is read here."),
        (head.startswith(b"SIMPLEPERF"), "simpleperf's own format",
         "simpleperf's stackcollapse.py writes collapsed stacks, which are read here."),
        (head.startswith(b"FLR\x00"), "a recording of Java Flight Recorder",
         "async-profiler's `jfrconv FILE OUT.collapsed` writes collapsed stacks, which are read here."),
        (_PSTATS.match(head) is not None, "a profile of cProfile, which contains no stacks",
         "Look at it with `python -m pstats FILE`, or record with `py-spy record -f speedscope`."),
        (_PPROF.match(head) is not None or name.endswith((".pprof", ".pb.gz")), "a pprof profile",
         "Convert it to collapsed stacks: `go tool pprof -raw FILE | stackcollapse-go.pl`."),
        (head.startswith((b"memray\x00", b"\x04\x22\x4d\x18")) and b"memray" in head[:32], "memray's own format",
         "`memray stats FILE` and `memray flamegraph FILE` show it."),
        (first.startswith((b"<?xml", b"<svg")) and b"<svg" in head, "a picture",
         "Give the stacks that it was drawn from: `py-spy record -f raw` or `-f speedscope` writes them."),
        (name.endswith((".pftrace", ".perfetto-trace")), "a Perfetto protobuf",
         "Convert it with Perfetto's `traceconv json FILE OUT.json`; rocprofv3 also writes --output-format json."),
        (b"tfevents" in name.encode(), "a TensorBoard event file",
         "Give the .pt.trace.json or .xplane.pb under plugins/profile instead."),
        (b"SQ_" in first or first.startswith(b"Dispatch_ID"), "a table of counters of rocprof-compute",
         "Analyse it with `rocprof-compute analyze -p FOLDER`; for time, give the run's *_kernel_trace.csv."),
        (b"Counter_Name" in first and b"Counter_Value" in first, "counters of rocprofv3, which contain no times",
         "Give the *_kernel_trace.csv of the same run (`rocprofv3 --kernel-trace --hip-trace`)."),
        (b"TotalDurationNs" in first and b"Calls" in first, "a table of sums of rocprof, which contains no times",
         "Give the *_trace.csv files of the same run, or record with `rocprofv3 --sys-trace`."),
        (b"Total Time (ns)" in first or b"Total Time (ns)" in head[:2000], "a table of `nsys stats`",
         "Give the report that it was made from: .nsys-rep, or `nsys export --type sqlite FILE`."),
        (first.startswith((b"==PROF==", b"[")) and b"Section:" in head, "ncu's report as text",
         "Export it as a table: `ncu --import FILE --csv --page raw`."),
        (b"==NVPROF==" in head or first.startswith(b'"Type","Time(%)"'), "output of nvprof",
         "nvprof is superseded: record with nsys, or open its .nvvp in Nsight Systems."),
        (b"fn=" in head and (b"events:" in head or first.startswith(b"# callgrind")), "a callgrind profile",
         "Convert it with speedscope or gprof2dot; collapsed stacks are read here."),
        (b"COST CENTRE" in head, "a profile of GHC", "Convert it to collapsed stacks with ghc-prof-flamegraph."),
    )  # fmt: skip
    match = next(((what, hint) for matches, what, hint in rows if matches), None)
    return None if match is None else (f"{name!r} is {match[0]}.", match[1])


def foreign_json_refusal(text: bytes) -> tuple[str, str] | None:
    """The same for JSON, by its first keys."""
    rows = (
        (b'"nodes"' in text and (b'"callFrame"' in text or b'"hitCount"' in text), "The file is a CPU profile of V8.",
         "It is JavaScript; open it in speedscope or the browser's developer tools."),
        (b'"dhatFileVersion"' in text, "The file is a heap profile of DHAT.", "Open it in Valgrind's dh_view.html."),
        (b'"abi"' in text and b'"product"' in text and b'"meta"' in text,
         "The file is a profile of Firefox in its raw form, or an old one.",
         "Open it on profiler.firefox.com and save it again; that form is read here."),
        (b'"root_frame"' in text and b'"sample_count"' in text, "The file is a session of pyinstrument.",
         "Record with `py-spy record -f speedscope`, or open it with pyinstrument."),
        (b'"total_num_allocations"' in text and b'"allocation_size_histogram"' in text,
         "The file holds memray's statistics, which contain no stacks.", "`memray flamegraph FILE.bin` shows stacks."),
        (b'"benchmarks"' in text and b'"runs"' in text, "The file contains results of pyperf, which are not a profile.",
         "`aisp bench compare-imports` compares two such files."),
        (b'"alloc_samples"' in text and b'"elapsed_time_sec"' in text, "The file is a report of Scalene by lines.",
         "`scalene view` shows it; for stacks, record with `py-spy record -f speedscope`."),
        (text.startswith(b'{"head"') and b'"callFrame"' in text, "The file is a heap profile of V8.",
         "It is JavaScript; open it in speedscope or the browser's developer tools."),
        (b'"pid"' in text and b'"schema"' in text and b"pytorch" in text.lower() and b'"nodes"' in text,
         "The file is an execution trace of PyTorch, which contains operators but no times.",
         "Give the torch.profiler trace of the same run."),
    )  # fmt: skip
    return next(((what, hint) for matches, what, hint in rows if matches), None)
