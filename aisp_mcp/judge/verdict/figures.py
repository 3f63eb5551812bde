"""Figures of both programs and verification counts, from replicates. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_low

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import CANCELLED, LARGE, NOT_SINGLE, TIES, TINY, UNDECIDED, Replicate, merge_measures
from aisp_mcp.judge.presets import undetected_share
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.measurement import Figures, Memory, Verification
from aisp_mcp.judge.verdict import estimate, wording

PAGE = 4096
ROLES: dict[str, tuple[Role, ...]] = {"baseline": BASELINES, "optimized": (Role.CANDIDATE,)}  # by field of a Comparison
NO_WORK = dict.fromkeys(("flops", "bytes", "items"), 0.0)


def memory_ratios(replicates: Sequence[Replicate]) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio) of the bytes that a round adds at its worst; at least a page.

    On a host, by the kernel's accounts; on a GPU, by the worker's own allocator.
    """
    log_ratios = []
    for replicate in replicates:
        on_gpu = bool(replicate.device.device_only)
        bytes_of = {role: row[0] for role, row in replicate.stats.items()} if on_gpu else replicate.host_peak
        logs = {role: math.log(max(value, PAGE)) for role, value in bytes_of.items()}
        first, repeat = (logs[role] for role in BASELINES)
        log_ratios.append(((first + repeat) / 2 - logs[Role.CANDIDATE], first - repeat))
    return log_ratios


def between_ranks(replicates: Sequence[Replicate]) -> dict[str, str]:
    """The distance between the ranks of a call, in words: the median over rounds of each round's median. Empty for
    programs of one process.
    """
    aparts = {
        name: [
            median_low(row.timing.apart_ns)
            for replicate in replicates
            for row in replicate.rounds
            if row.role in roles and row.timing.apart_ns
        ]
        for name, roles in ROLES.items()
    }
    if not all(aparts.values()):
        return {}
    of_baseline, of_candidate = (median_low(apart) / 1000 for apart in aparts.values())
    return {"ranks_apart": wording.ranks_apart(of_baseline, of_candidate)}


def of_program(
    replicates: Sequence[Replicate],
    roles: Sequence[Role],
    clock: str,
    work: dict[str, float],
    replaced: Sequence[tuple[Role, float]] = (),
    unit: str = "items",
) -> Figures:
    """Figures of a baseline or candidate over all rounds and processes. p50 and p95 are over single calls, on the
    worker's own clock.

    replaced: (role, seconds per call) that are used instead of the clock's. unit: name of the items of work.
    """
    rounds = [row for replicate in replicates for row in replicate.rounds if row.role in roles]
    durations = [ns / 1e9 for row in rounds for ns in row.timing.durations_ns]
    most = estimate.proven_with_host(replicates)
    of_parent = [s for replicate in replicates for s in estimate.parent_seconds(replicate, roles, clock, most)]
    parent = stats.quantile(of_parent, 0.5)
    if replaced:
        time_s = stats.quantile([seconds for role, seconds in replaced if role in roles], 0.5)
    elif clock in ("parent", "with_host"):
        time_s = parent
    else:
        time_s = stats.quantile([estimate.per_call(row, clock) for row in rounds], 0.5)
    return Figures(
        processes=len(replicates) * len(roles),
        rounds=len(rounds),
        calls=len(durations),
        time_s=time_s,
        p50_s=stats.quantile(durations, 0.5),
        p95_s=stats.quantile(durations, 0.95),
        p99_s=stats.quantile(durations, 0.99) if len(durations) >= stats.P99_CALLS else None,
        parent_time_s=parent,
        flops_per_s=work["flops"] / time_s if work["flops"] else None,
        bytes_per_s=work["bytes"] / time_s if work["bytes"] else None,
        items_per_s=work["items"] / time_s if work["items"] else None,
        unit=unit if work["items"] else None,
        memory=_memory(replicates, roles),
        prepare_s=max(replicate.prepare_s.get(role, 0.0) for replicate in replicates for role in roles) or None,
    )


def _memory(replicates: Sequence[Replicate], roles: Sequence[Role]) -> Memory:
    peaks = [replicate.host_peak.get(role, 0) for replicate in replicates for role in roles]
    device = [replicate.stats[role] for replicate in replicates for role in roles if role in replicate.stats]
    return Memory(
        host_peak_rss=max(peaks, default=0) or None,
        device_peak_allocated=max((row[0] for row in device), default=0) or None,
        device_peak_reserved=max((row[1] for row in device), default=0) or None,
    )


def verification(replicates: Sequence[Replicate], opened: OpenAnswer, failure: str | None) -> Verification:
    """Calls, comparisons, and the share of wrong calls that could still have escaped."""
    timed = [row for replicate in replicates for row in replicate.rounds if row.role is Role.CANDIDATE]
    calls = sum(row.timing.count for row in timed) + sum(replicate.device.candidate_calls for replicate in replicates)
    checked = sum(replicate.checked for replicate in replicates)
    measures: dict[str, float] = {}
    for replicate in replicates:
        merge_measures(measures, replicate.measures)
    marks = TIES, LARGE, TINY, UNDECIDED, CANCELLED, NOT_SINGLE
    return Verification(
        calls=calls,
        checked=checked,
        undetected_share=undetected_share(checked, calls) if calls else 1.0,
        max_error_ratio=max((replicate.worst_ratio for replicate in replicates), default=None),
        allowed_error_ratio=opened["error_ratio"],
        oracle=opened["oracle"],
        measures={name: value for name, value in measures.items() if not name.endswith(marks)},
        failure=failure,
    )
