"""Classify what limits a window, a set of kernels or a benchmark, with the values that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.profile.records import Breakdown, HostShare, Limiter, NcuKernel, Timeline
from aisp_mcp.records import Record

Bound = Literal[
    "compute", "memory", "latency", "communication", "host", "input", "copies", "device", "balanced", "unknown"
]
MIN_SHARE = 0.05  # smaller shares of the window decide nothing
NEAR_ROOF = 0.6  # of a roof: as `bound` in the shipped thresholds
FAR_FROM_ROOF = 0.4  # of both roofs: neither explains the time
DEFINITIONS = {
    "timeline": (
        "Shares of the window over all devices by exact interval unions. device: kernels run, and only counters say "
        "whether compute or memory bounds them. communication and copies: exposed, no kernel runs next to them. "
        "input: idle, and the host was in a data loader. host: idle, the next operation was not launched yet. "
        "latency: idle between operations that were launched already. The largest share is the bound."
    ),
    "counters": ("Each launch is judged by the decision tree over its counters; the bound with most kernel time wins."),
    "run": (
        "Declared work over measured time, as shares of this machine's measured ceilings: memory or compute from 60 % "
        "of a roof, latency (or overhead) where both shares are below 40 %."
    ),
}


class Share(Record):
    """One cause and its share of the window or of kernel time."""

    bound: str
    share: float
    why: str


class Bottleneck(Record):
    """The bound of one subject, the runner-up, and all shares, largest first."""

    subject: str
    bound: Bound
    sentence: str
    shares: list[Share]
    evidence: dict[str, float | str] = Field(default_factory=dict)


def of_timeline(subject: str, timeline: Timeline) -> Bottleneck:
    """Bottleneck of a trace: shares of its window by cause. Raises ValueError for a trace without device activity."""
    rows = timeline.breakdown
    span = sum(row.span_ns for row in rows)
    if not span:
        raise ValueError("no device activity")
    waiting = sum(row.idle_host_ns for row in rows)
    loading = _loading(timeline.host_in_gaps, waiting)
    parts = {
        "device": (_sum(rows, "compute_ns") + _sum(rows, "unknown_ns"), "a kernel runs"),
        "communication": (_sum(rows, "exposed_communication_ns"), "a collective runs without a concurrent kernel"),
        "copies": (_sum(rows, "exposed_memory_ns"), "a copy runs with nothing else"),
        "input": (loading, "the device waits, the host is in a data loader"),
        "host": (waiting - loading, "the device waits for its next launch"),
        "latency": (_sum(rows, "idle_kernel_ns") + _sum(rows, "idle_other_ns"), "launched operations wait to start"),
        "edge": (_sum(rows, "idle_edge_ns"), "before the first and after the last operation"),
    }
    shares = sorted(
        (Share(bound=name, share=round(ns / span, 6), why=why) for name, (ns, why) in parts.items()),
        key=lambda row: -row.share,
    )
    first = next(row for row in shares if row.bound != "edge")
    return Bottleneck(
        subject=subject,
        bound=first.bound,
        sentence=_in_words(shares),
        shares=[row for row in shares if row.share > 0],
        evidence={
            "window_ns": float(span / len(rows)),
            "devices": float(len(rows)),
            **{f"idle, host in {row.activity}": round(row.ns / span, 6) for row in timeline.host_in_gaps[:4]},
        },
    )


def of_kernels(subject: str, kernels: Sequence[NcuKernel]) -> Bottleneck:
    """Bottleneck of an ncu report: kernel time by limiter. Raises ValueError without counters or durations."""
    judged = [(k, k.limiter, k.duration_ns) for k in kernels if k.limiter is not None and k.duration_ns]
    whole = sum(ns for _, _, ns in judged)
    if not whole:
        raise ValueError("no launch has durations and throughput counters")
    times: dict[str, float] = {}
    for _, limiter, ns in judged:
        times[limiter.bound] = times.get(limiter.bound, 0.0) + ns
    ordered = sorted(times.items(), key=lambda item: -item[1])
    longest = max(judged, key=lambda item: item[2])
    return Bottleneck(
        subject=subject,
        bound=_family(ordered[0][0]),
        sentence=f"{ordered[0][0]}: {100 * ordered[0][1] / whole:.3g} % of the time of {len(judged)} judged launches",
        shares=[Share(bound=name, share=round(ns / whole, 6), why=_reason(judged, name)) for name, ns in ordered],
        evidence={"longest": longest[0].name[:96], **longest[1].evidence},
    )


def _reason(judged: Sequence[tuple[NcuKernel, Limiter, float]], bound: str) -> str:
    """The reason of the longest launch with this bound."""
    return max((item for item in judged if item[1].bound == bound), key=lambda item: item[2])[1].why


def of_rates(subject: str, compute: float | None, memory: float | None) -> Bottleneck:
    """Shares of the measured FLOP/s and bytes/s ceilings, None if the work or the ceiling is unknown."""
    known = {name: share for name, share in (("compute", compute), ("memory", memory)) if share is not None}
    shares = [
        Share(bound=name, share=round(share, 4), why=f"of the measured {name} ceiling")
        for name, share in sorted(known.items(), key=lambda item: -item[1])
    ]
    bound: Bound = "unknown"
    if len(known) == 2 and min(known.values()) >= NEAR_ROOF:
        bound = "balanced"
    elif known and max(known.values()) >= NEAR_ROOF:
        bound = "compute" if max(known, key=lambda name: known[name]) == "compute" else "memory"
    elif len(known) == 2 and max(known.values()) < FAR_FROM_ROOF:
        bound = "latency"
    sentence = ", ".join(f"{100 * row.share:.3g} % {row.why}" for row in shares) or "no ceiling or no declared work"
    return Bottleneck(subject=subject, bound=bound, sentence=f"{bound}: {sentence}", shares=shares)


def _sum(rows: Sequence[Breakdown], field: str) -> int:
    return sum(getattr(row, field) for row in rows)


def _loading(host: Sequence[HostShare], waiting: int) -> int:
    """Nanoseconds of host-caused idle time in which the host was in a data loader."""
    return min(sum(row.ns for row in host if row.activity == "input"), waiting)


def _in_words(shares: Sequence[Share]) -> str:
    large = [row for row in shares if row.share >= MIN_SHARE]
    return ", ".join(f"{row.bound} {100 * row.share:.3g} %" for row in large[:3]) or "no share of the window is large"


def _family(bound: str) -> Bound:
    """The word of the tree as one of the seven bounds."""
    if bound.startswith("compute"):
        return "compute"
    if bound.startswith(("memory", "spill")):
        return "memory"
    return "balanced" if bound == "balanced" else "latency"
