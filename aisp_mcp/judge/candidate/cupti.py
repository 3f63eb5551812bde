"""Activity of a GPU during a round, from CUPTI records, collected in a separate pass and never in a timed one.

It runs in the candidate's own process, so its records are only evidence: which streams and devices worked, which copies
went to the host and back, and whether host functions ran on a stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any


def traced(work: Callable[[], None]) -> dict[str, int]:
    """Run `work` under the profiler and count.

    kernels, copies: of the whole round, including the harness's own. streams, devices: number active. busy_ns: sum of
    all durations; elsewhere_ns: of those not on the stream and device of the first record, which is the harness's.
    """
    from torch.autograd.profiler import profile  # torch.profiler imports the whole compiler when it starts: 3 s

    with profile(use_device="cuda", use_kineto=True, acc_events=True) as profiler:
        work()
    return summarise([_row(event) for event in profiler.kineto_results.events()])


def _row(event: Any) -> tuple[str, str, int, int, int, int]:
    """(host or device, name, device, stream, start, duration in ns)."""
    where = "device" if "CUDA" in str(event.device_type()) else "host"
    return where, event.name(), event.device_index(), event.device_resource_id(), event.start_ns(), event.duration_ns()


def summarise(rows: list[tuple[str, str, int, int, int, int]]) -> dict[str, int]:
    """Count the rows of a round. Pure."""
    device = sorted((row for row in rows if row[0] == "device"), key=lambda row: row[4])
    calls = Counter(row[1] for row in rows if row[0] == "host")
    home = device[0][2:4] if device else None
    return {
        "kernels": sum(not row[1].startswith(("Memcpy", "Memset")) for row in device),
        "copies": sum(row[1].startswith(("Memcpy DtoH", "Memcpy HtoD")) for row in device),
        "streams": len({row[2:4] for row in device}),
        "devices": len({row[2] for row in device}),
        "elsewhere_ns": sum(row[5] for row in device if row[2:4] != home),
        "busy_ns": sum(row[5] for row in device),
        "graph_launches": sum(n for name, n in calls.items() if "GraphLaunch" in name),
        "host_functions": sum(n for name, n in calls.items() if "LaunchHostFunc" in name),
    }
