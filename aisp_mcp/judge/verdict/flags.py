"""Flags on a result from the kernel's accounts and from the device. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate, RoundTiming
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import COPIED_INTO_STRIDES, OWN_STRIDES, STRIDES
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import batching, estimators

HOST_MATTERS = 1.05  # ratio of the speedups with and without host time
# A candidate is accused if the delayed rounds would be so many of its own by accident no more often than this.
LATE_CHANCE = 1e-3
# A worker bound to its cores cannot use more of their time than other programs left. In two thousand rounds
# of honest programs on two cores, quiet and loaded, none used more than 0.994 of that.
CORES_SLACK, CORES_SLACK_S = 1.01, 0.002


def account_flags(replicates: Sequence[Replicate], cores: int) -> list[Flag]:
    """Flags from the kernel's accounts of the candidate's timed rounds, and from the device."""
    timings = [row.timing for replicate in replicates for row in replicate.rounds if row.role is Role.CANDIDATE]
    flags = []
    cpu = sum(timing.account.cpu_s for timing in timings)
    granted = sum(cores * timing.elapsed_s - _disturbed_s(timing) for timing in timings)
    if granted and cpu > CORES_SLACK * granted + CORES_SLACK_S:
        evidence = {"cpu_s": round(cpu, 4), "granted_s": round(granted, 4), "cores": cores}
        flags.append(_flag("undeclared_cores", "fatal", "used more cores than granted", evidence))
    children = max((timing.account.processes for timing in timings), default=1)
    if children > 1:
        flags.append(
            _flag("child_process", "warn", "other processes existed during timed rounds", {"processes": children})
        )
    flags += _edge_flags(replicates) + device_flags(replicates)
    if any(timing.copied_s for timing in timings):
        message = (
            "The candidate returns the same memory again and again. Its outputs are copied before they are overwritten:"
            " the parent's clock counts the copies but for what rounds of one call show not to belong to its calls."
        )
        flags.append(_flag("parent_overcounts", "note", message, {}))
    major = sum(timing.account.major_faults for timing in timings)
    if major:
        flags.append(_flag("major_faults", "warn", "memory came from disk", {"count": major}))
    return flags


def _disturbed_s(timing: RoundTiming) -> float:
    """Seconds of a round that other programs took from the first thread. The kernel's account goes on until the process
    is stopped: what does not fit beside that thread's own time came after the round.
    """
    return min(timing.account.disturbed_s, max(timing.elapsed_s - timing.account.first_s, 0.0))


def _edge_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A note for a candidate whose error is near the contract's limit, with the inputs that show it."""
    share, where = max((replicate.edge for replicate in replicates), default=(0.0, ""))
    message = f"At the edge of the tolerance: {where}."
    return [_flag("edge_of_tolerance", "note", message, {"share": round(share, 3)})] if share else []


def _flag(code: str, severity: str, message: str, evidence: dict[str, Any]) -> Flag:
    return Flag(code=code, severity=severity, message=message, evidence=evidence)


def layout_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A note if the candidate's outputs have other strides than the baseline's, by its worker's own account."""
    found = {number for replicate in replicates for number in replicate.stats.get(Role.CANDIDATE, ())[STRIDES:]}
    message = "The candidate's outputs have other strides than the baseline's"
    if COPIED_INTO_STRIDES in found:
        return [_flag("strides_copied", "note", f"{message}: copying them is part of each timed call.", {})]
    if OWN_STRIDES in found:
        return [_flag("strides_differ", "note", f"{message}, which its contract allows: no call contains a copy.", {})]
    return []


def device_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Flags for a device that was busy when it should have been idle, and for other uses of it."""
    flags = []
    busy = [seconds for replicate in replicates for seconds in replicate.device.busy_probes_s]
    if busy:
        evidence = {"rounds": len(busy), "probe_s": max(busy)}
        message = "the GPU was busy before rounds although all workers were stopped"
        flags.append(_flag("device_busy", "warn", message, evidence))
    flags += late_flags(replicates)
    if why := next((replicate.device.overcounted for replicate in replicates if replicate.device.overcounted), ""):
        message = f"The parent's clock counts more than the candidate's work on the device: {why}."
        flags.append(_flag("parent_overcounts", "note", message, {}))
    flags += _host_flags(replicates) + batching.gpu_flags(replicates)
    for activity in (replicate.device.activity for replicate in replicates if replicate.device.activity):
        if activity.get("elsewhere_ns") or activity.get("devices", 1) > 1:
            message = "the candidate also worked on other streams or devices"
            flags.append(_flag("other_streams", "note", message, dict(activity)))
    return flags


def _host_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A note if the speedup depends on how much host time is included."""
    both = [estimators.estimators(replicate) for replicate in replicates if replicate.device.with_host]
    if not both:
        return []
    alone, with_host = (
        math.exp(statistics.fmean(estimators.ratio(seconds_by_role)[0] for seconds_by_role in seconds))
        for seconds in zip(*both, strict=True)
    )
    if max(alone, with_host) <= HOST_MATTERS * min(alone, with_host):
        return []
    message = f"On the parent's clock the ratio is {alone:.3g}x on the device alone and {with_host:.3g}x with the host."
    return [_flag("host_bound", "note", message, {"ratio_alone": alone, "ratio_with_host": with_host})]


def late_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A flag for device work that continues after the worker reported that it was done.

    A worker waits for its device before it answers, so this is not an accident. If it also shows after baselines, it is
    another process's work, and so it may be if few rounds are concerned.
    """
    late, ended = Counter[Role](), Counter[Role]()
    for replicate in replicates:
        late.update(replicate.device.late_rounds)
        # A log from before these were counted has the timed rounds alone.
        ended.update(replicate.ended_rounds or Counter(row.role for row in replicate.rounds))
    (count, rounds), (others, other_rounds) = (
        (sum(min(late[role], ended[role]) for role in roles), sum(ended[role] for role in roles))
        for roles in ((Role.CANDIDATE,), BASELINES)
    )
    shares = count / max(rounds, 1), others / max(other_rounds, 1)
    if shares[0] <= 0.2:
        return []
    message = "the GPU was still working when the candidate reported that it was done"
    chance = stats.hypergeometric_tail(count, count + others, rounds, rounds + other_rounds)
    severity = "fatal" if shares[1] < 0.25 * shares[0] and chance < LATE_CHANCE else "warn"
    evidence = {
        "share_of_rounds": round(shares[0], 3),
        "behind_baselines": round(shares[1], 3),
        "chance": float(f"{chance:.2g}"),
    }
    return [_flag("work_after_done", severity, message, evidence)]
