"""Flags on a result from the kernel's accounts and from the device: what was found besides times. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import (
    APART,
    CANCELLED,
    LARGE,
    NOT_SINGLE,
    TIES,
    TINY,
    UNDECIDED,
    Replicate,
    RoundTiming,
)
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import COPIED_INTO_STRIDES, OWN_STRIDES, STRIDES
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import bound, estimate, wording

# --- calibrated constants

# Ratio of the speedups with and without host time from which both are named. Chosen: what two clocks may differ by.
HOST_MATTERS = 1.05
# Late device work: the share of the candidate's rounds from which it is flagged, and the share of that share behind
# baselines from which it may be another process's. Chosen: an accusation also needs LATE_CHANCE, the probability that
# by accident so many of the delayed rounds are the candidate's. With it, another process that delays 10 to 20 % of all
# rounds has fewer than one in 10,000 honest programs accused, instead of 2 to 4 % with a count of three rounds.
LATE_SHARE, LATE_ELSEWHERE, LATE_CHANCE = 0.2, 0.25, 1e-3
# Largest difference of accepted answers, as a share of their largest value, that is named as a lower precision. Below,
# another order of operations explains it; above, answers differ, as those of a task with several right ones do.
FEWER_DIGITS = 1e-9, 1e-3
# Share of an output below which an error on inputs far from 0 is not named. Chosen: numbers that cancel lose more.
NO_DIGITS_LOST = 1e-6
# A worker bound to its cores cannot use more of their time than other programs left: share and seconds of tolerance. In
# two thousand rounds of honest programs on two cores, quiet and loaded, none used more than 0.994 of that.
CORES_SLACK, CORES_SLACK_S = 1.01, 0.002


def account_flags(replicates: Sequence[Replicate], cores: int) -> list[Flag]:
    """Flags from the kernel's accounts of the candidate's timed rounds, and from the device."""
    timings = [row.timing for replicate in replicates for row in replicate.rounds if row.role is Role.CANDIDATE]
    flags = []
    cpu = sum(timing.account.cpu_s for timing in timings)
    granted = sum(cores * timing.elapsed_s - _disturbed_s(timing) for timing in timings)
    if granted and cpu > CORES_SLACK * granted + CORES_SLACK_S:
        evidence = {"cpu_s": round(cpu, 4), "granted_s": round(granted, 4), "cores": cores}
        flags.append(_flag("undeclared_cores", "fatal", wording.MORE_CORES_THAN_GRANTED, evidence))
    children = max((timing.account.processes for timing in timings), default=1)
    if children > 1:
        flags.append(_flag("child_process", "warn", wording.OTHER_PROCESSES, {"processes": children}))
    flags += _edge_flags(replicates) + _tie_flags(replicates) + _size_flags(replicates) + device_flags(replicates)
    flags += _precision_flags(replicates)
    if any(timing.copied_s for timing in timings):
        others = (row.timing for replicate in replicates for row in replicate.rounds if row.role in BASELINES)
        if not any(timing.copied_s for timing in others):
            flags.append(_flag(wording.REUSED, "warn", wording.REUSED_OUTPUT, {}))
        flags.append(_flag("parent_overcounts", "note", wording.COPIED_BEFORE_OVERWRITTEN, {}))
    major = sum(timing.account.major_faults for timing in timings)
    if major:
        flags.append(_flag("major_faults", "warn", wording.MEMORY_CAME_FROM_DISK, {"count": major}))
    return flags


def _disturbed_s(timing: RoundTiming) -> float:
    """Seconds of a round that other programs took from the first thread. The kernel's account goes on until the process
    is stopped: what does not fit beside that thread's own time came after the round.
    """
    return min(timing.account.disturbed_s, max(timing.elapsed_s - timing.account.first_s, 0.0))


def input_flags(facts: Mapping[str, Any]) -> list[Flag]:
    """Flags about inputs that could not be tried, or that do not change the output. facts: of the specification."""
    flags = []
    if untested := facts.get("inputs_not_tested"):
        flags.append(_flag("inputs_not_tested", "note", wording.inputs_not_tested(untested), dict(untested)))
    if facts.get("same_output"):
        flags.append(_flag("same_output", "warn", wording.SAME_OUTPUT, {}))
    return flags


def _tie_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    names = _measured(replicates, TIES)
    flags = [_flag("ties", "note", wording.ties(names), {"outputs": names})] if names else []
    if shares := _largest(replicates, UNDECIDED):
        flags.append(_flag("undecided", "note", wording.undecided(shares), {"shares": shares}))
    return flags


def _size_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    names = _measured(replicates, LARGE)
    flags = [_flag("large_inputs", "warn", wording.large_inputs(names), {"outputs": names})] if names else []
    if names := _measured(replicates, TINY):
        flags.append(_flag("tiny_inputs", "warn", wording.tiny_inputs(names), {"outputs": names}))
    largest = _largest(replicates, CANCELLED)
    if shares := {name: share for name, share in largest.items() if not 0 < share < NO_DIGITS_LOST}:
        flags.append(_flag(wording.CANCELS, "warn", wording.cancels(shares), {"shares": shares}))
    return flags


def _precision_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """That answers which a checker or a tolerance accepted are of a lower precision than the baseline's."""
    if any(replicate.measures.get(NOT_SINGLE) == 0 for replicate in replicates) and not any(
        replicate.measures.get(NOT_SINGLE) for replicate in replicates
    ):
        return [_flag(wording.SINGLE, "warn", wording.SINGLE_PRECISION, {})]
    apart = max((replicate.measures.get(APART, 0.0) for replicate in replicates), default=0.0)
    if not FEWER_DIGITS[0] < apart < FEWER_DIGITS[1]:
        return []
    return [_flag(wording.FEWER, "note", wording.fewer_digits(apart), {"apart": apart})]


def _measured(replicates: Sequence[Replicate], end: str) -> list[str]:
    """Names of outputs with a measure whose name has this end."""
    measured = {name for replicate in replicates for name in replicate.measures if name.endswith(end)}
    return sorted(name.removesuffix(end) for name in measured)


def _largest(replicates: Sequence[Replicate], end: str) -> dict[str, float]:
    """The largest value of each of these measures, by the output's name."""
    names = _measured(replicates, end)
    return {name: max(replicate.measures.get(name + end, 0.0) for replicate in replicates) for name in names}


def _edge_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A note for a candidate whose error is near the contract's limit, with the inputs that show it."""
    share, where = max((replicate.edge for replicate in replicates), default=(0.0, ""))
    if not share:
        return []
    return [_flag("edge_of_tolerance", "note", wording.edge_of_tolerance(where), {"share": round(share, 3)})]


def _flag(code: str, severity: str, message: str, evidence: dict[str, Any]) -> Flag:
    return Flag(code=code, severity=severity, message=message, evidence=evidence)


def layout_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A note if the candidate's outputs have other strides than the baseline's, by its worker's own account."""
    found = {number for replicate in replicates for number in replicate.stats.get(Role.CANDIDATE, ())[STRIDES:]}
    if COPIED_INTO_STRIDES in found:
        return [_flag("strides_copied", "note", wording.STRIDES_COPIED, {})]
    if OWN_STRIDES in found:
        return [_flag("strides_differ", "note", wording.STRIDES_DIFFER, {})]
    return []


def device_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Flags for a device that was busy when it should have been idle, and for other uses of it."""
    flags = []
    busy = [seconds for replicate in replicates for seconds in replicate.device.busy_probes_s]
    if busy:
        evidence = {"rounds": len(busy), "probe_s": max(busy)}
        flags.append(_flag("device_busy", "warn", wording.DEVICE_BUSY, evidence))
    flags += late_flags(replicates)
    if why := next((replicate.device.overcounted for replicate in replicates if replicate.device.overcounted), ""):
        flags.append(_flag("parent_overcounts", "note", wording.more_than_its_work(why), {}))
    flags += _host_flags(replicates) + bound.gpu_flags(replicates)
    for activity in (replicate.device.activity for replicate in replicates if replicate.device.activity):
        if activity.get("elsewhere_ns") or activity.get("devices", 1) > 1:
            flags.append(_flag("other_streams", "note", wording.OTHER_STREAMS, dict(activity)))
    return flags


def _host_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """A note if the speedup depends on how much host time is included."""
    both = [estimate.seconds_by_estimator(replicate) for replicate in replicates if replicate.device.with_host]
    if not both:
        return []
    alone, with_host = (
        math.exp(statistics.fmean(estimate.ratio(seconds_by_role)[0] for seconds_by_role in seconds))
        for seconds in zip(*both, strict=True)
    )
    if max(alone, with_host) <= HOST_MATTERS * min(alone, with_host):
        return []
    ratios = {"ratio_alone": alone, "ratio_with_host": with_host}
    return [_flag("host_bound", "note", wording.host_bound(**ratios), ratios)]


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
    if shares[0] <= LATE_SHARE:
        return []
    chance = stats.hypergeometric_tail(count, count + others, rounds, rounds + other_rounds)
    severity = "fatal" if shares[1] < LATE_ELSEWHERE * shares[0] and chance < LATE_CHANCE else "warn"
    evidence = {
        "share_of_rounds": round(shares[0], 3),
        "behind_baselines": round(shares[1], 3),
        "chance": float(f"{chance:.2g}"),
    }
    return [_flag("work_after_done", severity, wording.WORK_AFTER_DONE, evidence)]
