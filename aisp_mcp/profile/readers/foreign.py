"""Formats that are recognised and not read: what each is, and the tool that turns it into one that is."""

from __future__ import annotations

import re

KNOWN = (
    "Known: nsys SQLite, torch.profiler and JAX traces (JSON, xplane), rocprofv3 CSV and JSON, ncu CSV, memory "
    "snapshots (pickle, JSON), speedscope, collapsed stacks, perf script."
)
# `python  4012/4013 [002]  1234.567890:  10101010 cycles:u:`; the thread, the processor and the period may be missing.
PERF_SAMPLE = re.compile(r"^(\S.*?)\s+(-?\d+)(?:/(-?\d+))?\s+(?:\[\d+\]\s+)?\d+\.\d+:\s*(.*)$")
_PERF_COMMENT = re.compile(rb"^# (?:perf version|cmdline|captured on|=====)", re.M)


def is_perf(head: bytes) -> bool:
    """The first line that is not a comment is a sample as `perf script` prints it."""
    lines = head.decode("utf-8", "replace").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return bool(PERF_SAMPLE.match(first)) or _PERF_COMMENT.search(head) is not None


def refusal(name: str, head: bytes, first: bytes) -> tuple[str, str] | None:
    """(what it is, what to do) for a text or binary format that is known and not read."""
    rows = (
        (name.endswith((".pftrace", ".perfetto-trace")), "a Perfetto protobuf",
         "Convert it with Perfetto's `traceconv json FILE OUT.json`; rocprofv3 also writes --output-format json."),
        (b"tfevents" in name.encode(), "a TensorBoard event file",
         "Give the .pt.trace.json or .xplane.pb under plugins/profile instead."),
        (b"SQ_" in first or first.startswith(b"Dispatch_ID"), "a table of counters of rocprof-compute",
         "Analyse it with `rocprof-compute analyze -p FOLDER`; for time, give the run's *_kernel_trace.csv."),
        (b"NCCL INFO" in head or b"NCCL WARN" in head, "a log of NCCL, which holds no times of operations",
         "Record a trace with torch.profiler, or a flight recorder dump (TORCH_NCCL_TRACE_BUFFER_SIZE)."),
        (first.startswith((b"==PROF==", b"[")) and b"Section:" in head, "ncu's report as text",
         "Export it as a table: `ncu --import FILE --csv --page raw`."),
        (b"==NVPROF==" in head or first.startswith(b'"Type","Time(%)"'), "output of nvprof",
         "nvprof is superseded: record with nsys, or open its .nvvp in Nsight Systems."),
        (b"fn=" in head and (b"events:" in head or first.startswith(b"# callgrind")), "a callgrind profile",
         "Convert it with speedscope or gprof2dot; collapsed stacks are read here."),
        (b"COST CENTRE" in head, "a profile of GHC", "Convert it to collapsed stacks with ghc-prof-flamegraph."),
    )  # fmt: skip
    found = next(((what, hint) for matches, what, hint in rows if matches), None)
    return None if found is None else (f"{name!r} is {found[0]}.", found[1])


def json_refusal(text: bytes) -> tuple[str, str] | None:
    """The same for JSON by the keys at its beginning."""
    rows = (
        (b'"collective_seq_id"' in text or b'"nccl_comm_state"' in text,
         "The file is a flight recorder dump of PyTorch.",
         "Compare the dumps of all ranks with `torchfrtrace FOLDER`, which names the rank that others wait for."),
        (b'"nodes"' in text and (b'"callFrame"' in text or b'"hitCount"' in text), "The file is a CPU profile of V8.",
         "It holds JavaScript; open it in speedscope or the browser's developer tools."),
        (text.startswith(b'{"head"') and b'"callFrame"' in text, "The file is a heap profile of V8.",
         "It holds JavaScript; open it in speedscope or the browser's developer tools."),
        (b'"pid"' in text and b'"schema"' in text and b"pytorch" in text.lower() and b'"nodes"' in text,
         "The file is an execution trace of PyTorch, which holds operators and no times.",
         "Give the torch.profiler trace of the same run."),
    )  # fmt: skip
    return next(((what, hint) for matches, what, hint in rows if matches), None)
