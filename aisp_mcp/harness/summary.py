"""Turn replicates into the records a reader sees. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from aisp_mcp.harness import stats
from aisp_mcp.harness.paid import MOST_SPARED
from aisp_mcp.harness.replicate import OnDevice, Replicate
from aisp_mcp.harness.timing import AGAIN, BASELINE, CANDIDATE, Told, baseline_s, undetected_share
from aisp_mcp.harness.verdict import DEVICE_DELTA
from aisp_mcp.harness.workers import Lap
from aisp_mcp.model.measurement import Memory, Side, Verification
from aisp_mcp.model.verdict import Flag

PAGE = 4096
HOST_MATTERS = 1.05  # the ratio with the host over that without it, or the other way round
PAUSE_S = 2e-6  # between two calls on a device: 1.5 µs on an H200, and hardly any within one graph
# How well it is known what a call by itself costs besides. With the host an honest program, whose calls overlap with
# each other's launches, may save by itself only a part of what it saves among others.
GATE_S, GATE_SHARE, GATE_SCATTER_S = 2e-6, 0.01, 3e-6
HOST_S, HOST_PART, HOST_SCATTER = 5e-6, 0.85, 0.1
UNPROVEN = 0.95  # of a gain: what may be lost of it before that is said
LEAST_LATE = 3  # rounds of a candidate: fewer are no evidence
LETTER = {BASELINE: stats.BASELINE, AGAIN: stats.SECOND, CANDIDATE: stats.CANDIDATE}


def log_ratios(replicates: Sequence[Replicate], clock: str) -> list[stats.Replicate]:
    """Per replicate the candidate's and the A/A log-ratio on one clock: "parent", "shim" (the median of a round's
    calls) or "shim_mean". On a GPU the parent's has rounds of its own. Raises UnusableError.
    """
    return [_between(one) if clock == "parent" and one.device.alone else _by_rounds(one, clock) for one in replicates]


def _by_rounds(one: Replicate, clock: str) -> stats.Replicate:
    rounds = [(LETTER[turn[0]], per_call(turn, clock)) for turn in one.rounds]
    # A claim that no clock makes is no gap in the data. A negative call would lower the mean and leave the median.
    if clock != "parent" and any(
        own <= 0 or min(turn[3].durations_ns) < 0 for (_, own), turn in zip(rounds, one.rounds, strict=True)
    ):
        return stats.Replicate(math.nan, math.nan, 0, len(rounds))
    return stats.replicate_log_ratio(rounds)


def _between(one: Replicate) -> stats.Replicate:
    """The parent's ratio on a GPU (see gate.py): what is nearest to the shim's between the device alone and with the
    host, of whose time the shim's counts a part. Noise is that of the nearer one of both.

    Where the candidate's rounds hold copies that the others' do not, they tell only how much of a gain is proven: see
    unproven().
    """
    found = [_ratio(seconds) for seconds in _rulers(one)]
    low, high = min(found)[0], max(found)[0]
    try:
        claimed = _by_rounds(one, "shim").log_ratio
    except stats.UnusableError:
        claimed = math.nan
    bounded = claimed if one.device.copying else min(max(claimed, low), high)
    ratio = bounded if math.isfinite(claimed) else low
    _, noise = min(found, key=lambda ruler: abs(ruler[0] - ratio))
    return stats.Replicate(ratio, noise, 1, 0)


def _rulers(one: Replicate) -> list[dict[int, float]]:
    """Seconds per call of each side, measured in one or two ways, with what the candidate's calls gained together. A
    host can only add to what the device alone takes.
    """
    found: list[dict[int, float]] = []
    for told in _told(one.device):
        candidate_s = told.many[CANDIDATE] + told.hidden_s
        if found and one.device.gated:
            candidate_s = max(candidate_s, found[0][CANDIDATE])
        found.append(told.many | {CANDIDATE: candidate_s})
    return found


def _told(device: OnDevice) -> list[Told]:
    """What calls by themselves tell of each of these ways."""
    found = []
    if many := device.alone:
        share_s = GATE_SHARE * baseline_s(many)
        known_s = (HOST_S if device.copying else GATE_S) + share_s
        gated = Told(many, device.single, known_s, GATE_SCATTER_S + share_s)
        found.append(gated if device.gated else _told_with_host(many, device.single))
    if many := device.with_host:
        found.append(_told_with_host(many, device.single_with_host))
    return found


def _told_with_host(many: dict[int, float], single: dict[int, float]) -> Told:
    return Told(many, single, HOST_S, HOST_SCATTER * baseline_s(many), HOST_PART)


def with_host(replicates: Sequence[Replicate]) -> tuple[list[stats.Replicate], list[stats.Replicate]] | None:
    """The same of the rounds on a GPU in which the host counts, by the parent's and by the own clocks; None where there
    are none.
    """
    if not all(one.device.with_host and min(one.device.own_with_host.values()) > 0 for one in replicates):
        return None
    seconds = ([_rulers(one)[1] for one in replicates], [one.device.own_with_host for one in replicates])
    parent, own = ([stats.Replicate(*_ratio(one), 1, 0) for one in clock] for clock in seconds)
    return parent, own


def _ratio(seconds: dict[int, float]) -> tuple[float, float]:
    """(log-ratio, A/A log-ratio) of seconds per call of each side."""
    logs = {side: math.log(value) for side, value in seconds.items()}
    return (logs[BASELINE] + logs[AGAIN]) / 2 - logs[CANDIDATE], logs[BASELINE] - logs[AGAIN]


def _parent_seconds(one: Replicate, which: Sequence[int], clock: str) -> list[float]:
    """Seconds per call of these sides by the parent's clock: of each round, on a GPU of the ruler that counts."""
    if not (rulers := _rulers(one)):
        return [turn[1] for turn in one.rounds if turn[0] in which]
    if clock == "with_host":
        return [rulers[1][side] for side in which]
    ratio = _between(one).log_ratio
    nearest = min(rulers, key=lambda seconds: abs(_ratio(seconds)[0] - ratio))
    return [nearest[side] for side in which]


def per_call(turn: tuple[int, float, float, Lap], clock: str) -> float:
    """Seconds per call of one round on that clock."""
    _, net, median, lap = turn
    if clock == "shim_mean":
        return math.fsum(lap.durations_ns) / lap.count / 1e9
    return net if clock == "parent" else median


def memory_ratios(replicates: Sequence[Replicate], device: str) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio) of the bytes that a round adds at its worst; a page at least.

    On a host as the kernel accounts them; on a device as the worker's own allocator says.
    """
    found = []
    for one in replicates:
        bytes_of = {s: one.stats[s][0] for s in one.stats} if device == "cuda" else one.host_peak
        logs = {side: math.log(max(value, PAGE)) for side, value in bytes_of.items()}
        found.append(((logs[BASELINE] + logs[AGAIN]) / 2 - logs[CANDIDATE], logs[BASELINE] - logs[AGAIN]))
    return found


def unproven(replicates: Sequence[Replicate], ratio: float) -> Flag | None:
    """What is left of a gain where it could not be seen whether the candidate makes the copies of its outputs.

    They are made in its own process, which may compute into the referee's memory instead. On a CPU they are subtracted
    from its rounds, and rounds without copies tell (see paid.py); on a GPU nothing is subtracted, but rounds without
    copies are not to be had of every candidate (see gate.py). Where nothing tells, because the memory of workers cannot
    be read or a candidate gives back one buffer again and again, the least that the parent's clock proves is the ratio
    with all copies counted against it. That is a disagreement of the clocks, and the smaller ratio counts.
    """
    if all(not one.device.copying if one.device.alone else one.overhead.spared is not None for one in replicates):
        return None
    least = math.exp(stats.quantile([gain for gain, _ in proven_ratios(replicates)], 0.5))
    if least > UNPROVEN * ratio:
        return None
    message = (
        f"The parent's clock alone proves {least:.3g}x, not {ratio:.3g}x: that the candidate makes the copies of its "
        "outputs could not be seen, and the smaller counts."
    )
    return Flag(code="clock_disagreement", severity="warn", message=message, evidence={"ratio_proven": least})


def proven_ratios(replicates: Sequence[Replicate]) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio) on the parent's clock, with no copies subtracted but from those who are
    known to have made them: the baselines, and a candidate that was seen to.
    """
    found = []
    for one in replicates:
        if one.device.alone:
            reduced = _between(one)
            found.append(
                max(_ratio(seconds) for seconds in _rulers(one))
                if one.device.copying
                else (reduced.log_ratio, reduced.noise)
            )
            continue
        copies, fixed = one.overhead.per_call_s, one.overhead.fixed_s
        rounds = []
        for side, net, _, lap in one.rounds:
            paid = min(net + copies, max(lap.elapsed_s - fixed, 0.0) / lap.count)
            unseen = side == CANDIDATE and one.overhead.spared is None
            rounds.append((LETTER[side], max(paid, net) if unseen else net))
        reduced = stats.replicate_log_ratio(rounds)
        found.append((reduced.log_ratio, reduced.noise))
    return found


def parent_resolution(replicates: Sequence[Replicate]) -> float:
    """How well the parent's clock knows the ratio on a CPU: the worst side's resolution, in the median replicate.

    Nothing is conceded to a candidate that spared itself most of the copying: what makes the clock coarse is its own.
    """
    if stats.quantile([one.overhead.spared or 0.0 for one in replicates], 0.5) > MOST_SPARED:
        return 0.0
    worst = [max(one.overhead.resolution(net, lap.count) for _, net, _, lap in one.rounds) for one in replicates]
    return stats.quantile(worst, 0.5)


def side(replicates: Sequence[Replicate], which: Sequence[int], clock: str, work: dict[str, float]) -> Side:
    """All rounds of one side over all processes. p50 and p95 are over single calls by the side's own clock."""
    turns = [turn for replicate in replicates for turn in replicate.rounds if turn[0] in which]
    durations = [ns / 1e9 for turn in turns for ns in turn[3].durations_ns]
    parent = stats.quantile([seconds for one in replicates for seconds in _parent_seconds(one, which, clock)], 0.5)
    time_s = (
        parent if clock in ("parent", "with_host") else stats.quantile([per_call(turn, clock) for turn in turns], 0.5)
    )
    peaks = [replicate.host_peak.get(number, 0) for replicate in replicates for number in which]
    device = [replicate.stats[number] for replicate in replicates for number in which if number in replicate.stats]
    return Side(
        processes=len(replicates) * len(which),
        rounds=len(turns),
        calls=len(durations),
        time_s=time_s,
        p50_s=stats.quantile(durations, 0.5),
        p95_s=stats.quantile(durations, 0.95),
        p99_s=stats.quantile(durations, 0.99) if len(durations) >= stats.P99_CALLS else None,
        parent_time_s=parent,
        flops_per_s=work["flops"] / time_s if work["flops"] else None,
        bytes_per_s=work["bytes"] / time_s if work["bytes"] else None,
        memory=Memory(
            host_peak_rss=max(peaks, default=0) or None,
            device_peak_allocated=max((row[0] for row in device), default=0) or None,
            device_peak_reserved=max((row[1] for row in device), default=0) or None,
        ),
        prepare_s=max(replicate.prepare_s.get(number, 0.0) for replicate in replicates for number in which) or None,
    )


def verification(replicates: Sequence[Replicate], opened: dict[str, Any], failure: str | None) -> Verification:
    """What was compared, and what share of wrong calls could still have slipped through."""
    calls = sum(turn[3].count for replicate in replicates for turn in replicate.rounds if turn[0] == CANDIDATE)
    checked = sum(replicate.checked for replicate in replicates)
    return Verification(
        calls=calls,
        checked=checked,
        undetected_share=undetected_share(checked, calls) if calls else 1.0,
        max_error_ratio=max((replicate.worst_ratio for replicate in replicates), default=None),
        allowed_error_ratio=opened["error_ratio"],
        oracle=opened["oracle"],
        failure=failure,
    )


def device_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """What the verifier saw of a device that should have stood still, and what the candidate's profiler counted."""
    flags = []
    busy = [seconds for replicate in replicates for seconds in replicate.device.busy]
    if busy:
        evidence = {"rounds": len(busy), "probe_s": max(busy)}
        message = "the GPU worked before rounds although all workers stood still"
        flags.append(Flag(code="device_busy", severity="warn", message=message, evidence=evidence))
    flags += late_flags(replicates)
    if why := next((one.device.hindered for one in replicates if one.device.hindered), ""):
        message = f"The parent's clock counts more than the candidate's work on the device: {why}."
        flags.append(Flag(code="parent_hindered", severity="note", message=message))
    flags += _host_flags(replicates) + _pause_flags(replicates) + _together_flags(replicates)
    for activity in (one.device.activity for one in replicates if one.device.activity):
        if activity.get("elsewhere_ns") or activity.get("devices", 1) > 1:
            message = "the candidate also worked on other streams or devices"
            flags.append(Flag(code="other_streams", severity="note", message=message, evidence=dict(activity)))
    return flags


def _host_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """That the host decides how much the candidate gains, where it does."""
    both = [_rulers(one) for one in replicates if one.device.with_host]
    if not both:
        return []
    alone, together = (
        math.exp(statistics.fmean(_ratio(one)[0] for one in seconds)) for seconds in zip(*both, strict=True)
    )
    if max(alone, together) <= HOST_MATTERS * min(alone, together):
        return []
    message = f"By the parent's clock the ratio is {alone:.3g}x on the device alone and {together:.3g}x with the host."
    evidence = {"ratio_alone": alone, "ratio_with_host": together}
    return [Flag(code="host_bound", severity="note", message=message, evidence=evidence)]


def _pause_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """That calls are so short that what a candidate could gain by work on several at once is more than is conceded to
    a clock: the pauses between calls, and what calls by themselves do not tell.
    """
    devices = [one.device for one in replicates if one.device.alone]
    if not devices:
        return []
    rooms = [max(((told.room_s, told.many[CANDIDATE]) for told in _told(one)), key=_share) for one in devices]
    hidden_s, call_s = sorted(rooms, key=_share)[len(rooms) // 2]
    if (share := _share((hidden_s, call_s))) <= DEVICE_DELTA:
        return []
    message = (
        f"Calls are so short that work on several at once could hide {1e6 * (hidden_s + PAUSE_S):.0f} µs, "
        f"{100 * share:.0f} % of one: smaller gains rest on the shim alone."
    )
    evidence = {"call_s": call_s, "hidden_s": hidden_s + PAUSE_S}
    severity = "note" if all(one.gated and not one.with_host for one in devices) else "warn"
    return [Flag(code="parent_coarse", severity=severity, message=message, evidence=evidence)]


def _share(room: tuple[float, float]) -> float:
    """Of a call, what could be hidden in it, pauses included."""
    hidden_s, call_s = room
    return (hidden_s + PAUSE_S) / call_s


def _together_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """That single calls cost the candidate more than they cost the baselines, which its rounds of many calls hid: in
    half of the replicates at least, since one whose host was disturbed accuses nobody.
    """
    both = [[told.hidden_s for told in _told(one.device)] for one in replicates if one.device.alone]
    if not both or (hidden := max(statistics.median_low(rows) for rows in zip(*both, strict=False))) <= 0:
        return []
    message = (
        f"A call by itself takes {1e6 * hidden:.0f} µs more than one among others: the parent's clock counts that."
    )
    return [Flag(code="faster_together", severity="warn", message=message, evidence={"hidden_s": hidden})]


def late_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Work behind the answer that says there is none. An honest shim waits for its device, so this is no accident;
    where it also shows behind baselines, which wait, it is somebody else's.
    """
    laps = [turn[0] for replicate in replicates for turn in replicate.rounds]
    count, shares = sum(replicate.device.late.get(CANDIDATE, 0) for replicate in replicates), []
    for sides in ((CANDIDATE,), (BASELINE, AGAIN)):
        rounds = max(sum(laps.count(side) for side in sides), 1)
        shares.append(sum(replicate.device.late.get(side, 0) for replicate in replicates for side in sides) / rounds)
    if shares[0] <= 0.2:
        return []
    message = "the GPU still worked when the candidate had said that it was done"
    # Another process that wakes up on the device makes one or two rounds late, and may meet this side alone.
    severity = "fatal" if count >= LEAST_LATE and shares[1] < 0.25 * shares[0] else "warn"
    evidence = {"share_of_rounds": round(shares[0], 3), "behind_baselines": round(shares[1], 3)}
    return [Flag(code="work_after_done", severity=severity, message=message, evidence=evidence)]


def account_flags(replicates: Sequence[Replicate], cores: int) -> list[Flag]:
    """What the kernel's accounts say about the timed rounds of the candidate."""
    laps = [turn[3] for replicate in replicates for turn in replicate.rounds if turn[0] == CANDIDATE]
    flags = []
    cpu, wall = sum(lap.account.cpu_s for lap in laps), sum(lap.elapsed_s for lap in laps)
    if wall and cpu > 1.25 * cores * wall + 0.05:
        evidence = {"cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "cores": cores}
        flags.append(
            Flag(code="undeclared_cores", severity="fatal", message="used more cores than granted", evidence=evidence)
        )
    children = max((lap.account.processes for lap in laps), default=1)
    if children > 1:
        evidence = {"processes": children}
        flags.append(
            Flag(
                code="child_process",
                severity="warn",
                message="other processes lived in timed rounds",
                evidence=evidence,
            )
        )
    flags += device_flags(replicates)
    major = sum(lap.account.major_faults for lap in laps)
    if major:
        flags.append(
            Flag(code="major_faults", severity="warn", message="memory came from disk", evidence={"count": major})
        )
    return flags
