"""Formats that are recognised but not read, each with the tool that converts it to a readable one."""

from __future__ import annotations

import re

KNOWN = (
    "Known: nsys SQLite, torch.profiler and JAX traces (JSON, xplane), rocprofv3 CSV and JSON, ncu CSV, memory "
    "snapshots (pickle, JSON), speedscope, collapsed stacks, perf script, flight recorder dumps, logs of NCCL."
)
# `python  4012/4013 [002]  1234.567890:  10101010 cycles:u:`; the thread, the processor and the period may be missing.
PERF_SAMPLE = re.compile(r"^(\S.*?)\s+(-?\d+)(?:/(-?\d+))?\s+(?:\[\d+\]\s+)?\d+\.\d+:\s*(.*)$")
_PERF_COMMENT = re.compile(rb"^# (?:perf version|cmdline|captured on|=====)", re.M)


def is_perf(head: bytes) -> bool:
    """Return True if the first line that is not a comment is a sample as `perf script` prints it."""
    lines = head.decode("utf-8", "replace").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return bool(PERF_SAMPLE.match(first)) or _PERF_COMMENT.search(head) is not None


def is_flight(head: bytes) -> bool:
    """Return True for a dump of PyTorch's flight recorder, pickle or JSON."""
    if b"profiling_name" in head and b"seq_id" in head:
        return True
    trace = any(mark in head for mark in (b"schemaVersion", b"traceEvents", b"deviceProperties", b"distributedInfo"))
    return not trace and any(mark in head for mark in (b"pg_config", b"pg_status", b"nccl_comm_state"))


def is_nccl(head: bytes) -> bool:
    """Return True if a line of NCCL, or of PyTorch's watchdog, is among the first."""
    return any(
        mark in head for mark in (b"NCCL INFO", b"NCCL WARN", b"Watchdog caught collective", b"ProcessGroupNCCL")
    )


def refusal(name: str, head: bytes, first: bytes) -> tuple[str, str] | None:
    """(format, remedy) for a text or binary format that is known but not read."""
    rows = (
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


def json_refusal(text: bytes) -> tuple[str, str] | None:
    """The same for JSON, by its first keys."""
    rows = (
        (b'"nodes"' in text and (b'"callFrame"' in text or b'"hitCount"' in text), "The file is a CPU profile of V8.",
         "It is JavaScript; open it in speedscope or the browser's developer tools."),
        (text.startswith(b'{"head"') and b'"callFrame"' in text, "The file is a heap profile of V8.",
         "It is JavaScript; open it in speedscope or the browser's developer tools."),
        (b'"pid"' in text and b'"schema"' in text and b"pytorch" in text.lower() and b'"nodes"' in text,
         "The file is an execution trace of PyTorch, which contains operators but no times.",
         "Give the torch.profiler trace of the same run."),
    )  # fmt: skip
    return next(((what, hint) for matches, what, hint in rows if matches), None)
