"""Two profiles: are they comparable, what changed, and which kernel or phase explains it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.profile.records import Breakdown, NcuKernel, OpStat, Profile, Timeline
from aisp_mcp.records import Record

_SAME = 0.01  # relative difference of time below which two windows count as equal
# One factor for (nearly) all kernels means another amount of work; a factor for some kernels, another program.
_SAME_COUNT, _ALIKE, _MOST = 0.02, 0.1, 0.8
_KEYS = (
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "launch__registers_per_thread",
    "launch__waves_per_multiprocessor",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
)


class Delta(Record):
    """One item in both profiles, in nanoseconds per unit of comparison. change = b - a."""

    name: str
    a_ns: float
    b_ns: float
    change_ns: float
    a_count: float | None = None
    b_count: float | None = None


class Difference(Record):
    """b against a. Phases sum exactly to the change of the window; kernels to the change of kernel time."""

    verdict: Literal["faster", "slower", "same", "not comparable"]
    ratio: float | None = Field(description="Window of a over window of b: above 1, b is faster.")
    unit: str
    explained_by: str | None
    warnings: list[str]
    window: Delta
    phases: list[Delta]
    kernels: list[Delta]
    memory: list[Delta]
    api: list[Delta]
    left_out: int = Field(default=0, description="Rows of the longest table after those shown.")


class KernelShift(Record):
    """One launch in both reports: (a, b) of each metric that both have."""

    kernel: str
    a_id: int
    b_id: int
    ratio: float | None
    a_bound: str | None
    b_bound: str | None
    metrics: dict[str, tuple[float, float]]


class NcuDifference(Record):
    """b against a, launch by launch."""

    matched: list[KernelShift]
    only_a: list[str]
    only_b: list[str]
    warnings: list[str]
    left_out: int = Field(default=0, description="Matched launches after those shown.")


def compare(a: Profile, b: Profile) -> Difference:
    """Attribute the difference. Raises UsageError WRONG_KIND if a profile has no device timeline."""
    first, two = _needed(a), _needed(b)
    per_a, per_b, unit = _units(first, two)
    window = _delta("window", _span(first) / per_a, _span(two) / per_b)
    phases = [_delta(name, _mean(first, name) / per_a, _mean(two, name) / per_b) for name in _PHASES]
    kernels = _matched(first.kernels, two.kernels, per_a, per_b)
    blockers, warnings = _comparable(a, b, first, two)
    change = abs(window.change_ns) / window.a_ns if window.a_ns else 0.0
    word: Literal["faster", "slower", "same", "not comparable"]
    word = (
        "not comparable" if blockers else "same" if change < _SAME else "slower" if window.change_ns > 0 else "faster"
    )
    return Difference(
        verdict=word,
        ratio=window.a_ns / window.b_ns if window.b_ns and not blockers else None,
        unit=unit,
        explained_by=_cause(window, phases, kernels) if word in ("faster", "slower") else None,
        warnings=[*blockers, *warnings],
        window=window,
        phases=_largest(phases),
        kernels=_largest(kernels),
        memory=_largest(_matched(first.memory, two.memory, per_a, per_b)),
        api=_largest(_matched(first.api, two.api, per_a, per_b)),
    )


_PHASES = (
    "compute",
    "unknown kernels",
    "exposed communication",
    "exposed copies",
    "idle: host",
    "idle: kernel",
    "idle: dependency",
    "idle: other",
    "idle: unknown",
    "idle: edge",
)


def _needed(profile: Profile) -> Timeline:
    if profile.timeline is None or not profile.timeline.breakdown:
        raise UsageError(
            "WRONG_KIND", f"{profile.source.path!r} has no device activity.", "Compare two traces of a GPU run."
        )
    return profile.timeline


def _units(a: Timeline, b: Timeline) -> tuple[int, int, str]:
    if len(a.steps) >= 2 and len(b.steps) >= 2:
        return len(a.steps), len(b.steps), "one iteration"
    return 1, 1, "the whole window"


def _span(timeline: Timeline) -> float:
    return sum(row.span_ns for row in timeline.breakdown) / len(timeline.breakdown)


def _mean(timeline: Timeline, phase: str) -> float:
    return sum(_phase(row, phase) for row in timeline.breakdown) / len(timeline.breakdown)


def _phase(row: Breakdown, phase: str) -> int:
    return {
        "compute": row.compute_ns,
        "unknown kernels": row.unknown_ns,
        "exposed communication": row.exposed_communication_ns,
        "exposed copies": row.exposed_memory_ns,
        "idle: host": row.idle_host_ns,
        "idle: kernel": row.idle_kernel_ns,
        "idle: dependency": row.idle_dependency_ns,
        "idle: other": row.idle_other_ns,
        "idle: unknown": row.idle_unknown_ns,
        "idle: edge": row.idle_edge_ns,
    }[phase]


def _delta(name: str, a: float, b: float, a_count: float | None = None, b_count: float | None = None) -> Delta:
    return Delta(name=name, a_ns=a, b_ns=b, change_ns=b - a, a_count=a_count, b_count=b_count)


def _largest(rows: Sequence[Delta]) -> list[Delta]:
    return sorted(rows, key=lambda d: (-abs(d.change_ns), d.name))


def _matched(a: Sequence[OpStat], b: Sequence[OpStat], per_a: int, per_b: int) -> list[Delta]:
    """Match by name, then the rest by the name without its numbers if that is unique in both."""
    left = {row.name: row for row in a}
    right = {row.name: row for row in b}
    pairs = [(left.pop(name), right.pop(name)) for name in [n for n in left if n in right]]
    loose_a, loose_b = _loose(left), _loose(right)
    for key in [k for k in loose_a if k in loose_b and loose_a[k] and loose_b[k]]:
        first, two = loose_a[key], loose_b[key]
        if first is not None and two is not None:
            pairs.append((left.pop(first.name), right.pop(two.name)))
    rows = [_delta(y.name, x.total_ns / per_a, y.total_ns / per_b, x.count / per_a, y.count / per_b) for x, y in pairs]
    rows += [_delta(x.name, x.total_ns / per_a, 0, x.count / per_a, 0) for x in left.values()]
    rows += [_delta(y.name, 0, y.total_ns / per_b, 0, y.count / per_b) for y in right.values()]
    return rows


def _loose(rows: dict[str, OpStat]) -> dict[str, OpStat | None]:
    """name without digits → its only row, or None if several share it."""
    op_stats: dict[str, OpStat | None] = {}
    for row in rows.values():
        key = re.sub(r"\d+", "#", row.name)
        op_stats[key] = None if key in op_stats else row
    return op_stats


def _cause(window: Delta, phases: Sequence[Delta], kernels: Sequence[Delta]) -> str | None:
    """The phase that changed most in the window's direction; compute is traced to its kernel."""
    way = 1 if window.change_ns > 0 else -1
    phase = max(phases, key=lambda d: d.change_ns * way)
    if phase.change_ns * way <= 0:
        return None
    if phase.name not in ("compute", "unknown kernels", "exposed communication") or not kernels:
        return phase.name
    kernel = max(kernels, key=lambda d: d.change_ns * way)
    return kernel.name if kernel.change_ns * way > 0 else phase.name


def _comparable(a: Profile, b: Profile, first: Timeline, two: Timeline) -> tuple[list[str], list[str]]:
    """(reasons against a verdict, notes for the reader)."""
    blockers, warnings = [], []
    if a.source.kind != b.source.kind:
        warnings.append(f"Recorded by different profilers ({a.source.tool}, {b.source.tool}): their overheads differ.")
    names = [sorted(d.name or "unknown" for d in p.devices) for p in (a, b)]
    if all(names) and names[0] != names[1]:
        blockers.append(f"Different devices: {', '.join(names[0])} and {', '.join(names[1])}.")
    if len(first.breakdown) != len(two.breakdown):
        blockers.append(f"Different numbers of active devices: {len(first.breakdown)} and {len(two.breakdown)}.")
    if not (len(first.steps) >= 2 and len(two.steps) >= 2):
        blockers += _other_amount(first, two)
        warnings.append("Without iterations in both, whole windows are compared: they must have done the same work.")
    known = {k.name for k in first.kernels}
    shared = sum(k.total_ns for k in two.kernels if k.name in known)
    everything = sum(k.total_ns for k in two.kernels)
    if everything and shared < 0.1 * everything:
        warnings.append("Fewer than 10 % of the kernel time has a counterpart of the same name.")
    return blockers, warnings


def _other_amount(first: Timeline, two: Timeline) -> list[str]:
    """Recognise windows of a fixed length, which catch more launches of a faster program: their length
    means nothing.
    """
    counts = {k.name: k.count for k in first.kernels}
    shared = [(k.count / counts[k.name], k.total_ns) for k in two.kernels if k.name in counts]
    if not shared:
        return []
    middle = median(ratio for ratio, _ in shared)
    alike = sum(ns for ratio, ns in shared if abs(ratio / middle - 1) < _ALIKE)
    if abs(middle - 1) <= _SAME_COUNT or alike < _MOST * sum(ns for _, ns in shared):
        return []
    return [
        f"The windows did different amounts of work: b launched the kernels of both {middle:.3g} times as often. "
        "Mark iterations (NVTX ranges named step), or record the same number of them."
    ]


def compare_ncu(a: Profile, b: Profile) -> NcuDifference:
    """Match launches by name and order of appearance. Raises UsageError WRONG_KIND for other profiles."""
    if not a.kernels or not b.kernels:
        raise UsageError(
            "WRONG_KIND", "Both files must be ncu pages with kernels.", "Export with `ncu --csv --page raw`."
        )
    left, right = _by_name(a.kernels), _by_name(b.kernels)
    matched = [_shift(x, y) for name in left if name in right for x, y in zip(left[name], right[name], strict=False)]
    capability = {k.compute_capability for k in (*a.kernels, *b.kernels)}
    warnings = (
        [f"Different compute capabilities: {', '.join(sorted(str(c) for c in capability))}."]
        if len(capability) > 1
        else []
    )
    return NcuDifference(
        matched=sorted(matched, key=lambda s: -abs((s.ratio or 1) - 1)),
        only_a=[name for name in left if name not in right],
        only_b=[name for name in right if name not in left],
        warnings=warnings,
    )


def _by_name(kernels: Sequence[NcuKernel]) -> dict[str, list[NcuKernel]]:
    ncu_kernels: dict[str, list[NcuKernel]] = {}
    for kernel in kernels:
        ncu_kernels.setdefault(kernel.name, []).append(kernel)
    return ncu_kernels


def _shift(a: NcuKernel, b: NcuKernel) -> KernelShift:
    return KernelShift(
        kernel=b.name,
        a_id=a.id,
        b_id=b.id,
        ratio=a.duration_ns / b.duration_ns if a.duration_ns and b.duration_ns else None,
        a_bound=a.limiter.bound if a.limiter else None,
        b_bound=b.limiter.bound if b.limiter else None,
        metrics={key: (a.metrics[key], b.metrics[key]) for key in _KEYS if key in a.metrics and key in b.metrics},
    )
