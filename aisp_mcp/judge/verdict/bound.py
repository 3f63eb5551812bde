"""Second step of a verdict: the part of a gain that is proven.

Two bounds can reduce a gain. Back-to-back calls may speed each other up, and all inputs of a round are in memory from
its first call on: isolated calls (parent/timing/cpu.py, verifier/handoff_gpu.py) must show the gain as well.
And the parent's clock proves a gain only as far as nothing was subtracted that a candidate could skip. On a CPU, the
cost of the loop around the calls is subtracted from all rounds, so for a short call that part is not counted as a
gain. On a GPU nothing is subtracted, but not every candidate can have rounds without copies
(parent/timing/gpu/schedule.py); otherwise, all copies count against it.

Isolated calls can only reduce a gain. They prove no loss, since two processes of one program may differ in them. All
functions are pure.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import replace

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import MIN_NET_SHARE, Replicate, baseline_s
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import estimate as estimates
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.estimate import Estimate, batching_gain, isolated_evidence

# --- calibrated constants

# Share of the reported ratio below which the lower bound replaces it: more than 5 % of the gain is unproven
# (decision 21, results/h200-proven.json).
MIN_SHARE = 1 / 1.05
# The same on a CPU, where MIN_SHARE is already conceded to the loop and to isolated calls. Chosen: half a per cent is
# rounding.
NEARLY_ALL = 0.995
# Standard errors by which isolated calls must fall short before they bound a gain (decision 21).
ERRORS = 2.0

# Share of a call that warmer caches may save back to back, and seconds of error of the handoff (decision 19).
CACHE_SHARE, HANDOFF_S = 0.02, 0.5e-6
# Seconds that cold caches may add to a round of one call, and the share of the back-to-back gain that must show in such
# rounds, whose start-up costs far more. Chosen: both only serve machines with a single core, and err for the candidate.
COLD_S, ROUNDS_PART = 50e-6, 0.5
# Share of a baseline's call that is left of any net time, so that its logarithm exists.
LEAST_NET_SHARE = 1e-3

LOWER_BOUND = "lower_bound"  # name of this clock in a result

LogRatios = Sequence[float]  # per replicate, on the clock of the ratio that is about to be reported


def by_isolated_calls(estimate: Estimate, replicates: Sequence[Replicate]) -> Estimate | None:
    """The gain of isolated calls, for a candidate that gains by batching across calls; None otherwise."""
    flag = batching_flag(replicates, estimate.clocks.used)
    if flag is None:
        return None
    ratios = ratios_of_isolated_calls(replicates, estimate.clocks.used)
    return replace(estimate, ratios=ratios, flags=[*estimate.flags, flag])


def by_parent_clock(estimate: Estimate, replicates: Sequence[Replicate]) -> Estimate | None:
    """The gain that the parent's clock proves, if it is much less than the estimate; None otherwise."""
    reported = estimate.log_ratios
    flag = lower_bound_flag(replicates, reported)
    if flag is None:
        return None
    clocks = {"used": LOWER_BOUND, "ratio_lower_bound": flag.evidence["ratio_lower_bound"]}
    return replace(
        estimate,
        ratios=lower_bound_ratios(replicates, reported),
        clocks=estimate.clocks.model_copy(update=clocks),
        flags=[*(other for other in estimate.flags if other.code != flag.code), flag],
        seconds=lower_bound_seconds(replicates, reported, estimate.clocks.used),
    )


# --- the lower bound by the parent's clock


def lower_bound_flag(replicates: Sequence[Replicate], reported: LogRatios) -> Flag | None:
    """The flag for a lower bound that is clearly less than the reported ratio, and is then reported instead.

    Clearly means less than MIN_SHARE of it. On a CPU, that much is already conceded to the loop and to isolated calls.
    """
    bound = math.exp(statistics.fmean(gain for gain, _ in lower_bound_ratios(replicates, reported)))
    estimated = math.exp(statistics.fmean(reported))
    on_gpu = any(replicate.device.device_only for replicate in replicates)
    if bound >= (MIN_SHARE if on_gpu else NEARLY_ALL) * estimated:
        return None
    code = "clock_resolution_low"
    if any(replicate.device.copying for replicate in replicates):
        code, why = "clock_disagreement", wording.UNOBSERVED_COPIES
    elif _isolated_binds(replicates, reported):
        why = wording.ISOLATED_CALLS_GAIN_LESS
    elif statistics.fmean(map(_claimed, replicates)) < math.log(NEARLY_ALL) + statistics.fmean(reported):
        why = wording.WORKER_CLOCKS_SHOW_LESS
    else:
        why = wording.AS_SHORT_AS_THE_LOOP
    message = wording.only_a_part_is_proven(proven=bound, measured=estimated, why=why)
    return Flag(code=code, severity="warn", message=message, evidence={"ratio_lower_bound": bound, "ratio": estimated})


def lower_bound_ratios(replicates: Sequence[Replicate], reported: LogRatios) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio)."""
    ratios = []
    isolated = _isolated_binds(replicates, reported)
    for replicate, on_gpu, log_ratio in zip(replicates, estimates.bounded_seconds(replicates), reported, strict=True):
        if not on_gpu:
            skippable = math.log1p(estimates.parent_resolution([replicate]))
            paid = min(log_ratio - max(skippable + math.log(MIN_SHARE), 0.0), _claimed(replicate))
            noise = estimates.log_ratios([replicate], "parent")[0].noise
            proven = [(max(log_ratio, 0.0), apart) for log_ratio, apart in isolated_ratios(replicate) if isolated]
            ratios.append(min([(paid, noise), *proven]))
        elif replicate.device.copying:
            ratios.append(max(map(estimates.ratio, on_gpu)))
        else:
            bounded = estimates.between(on_gpu, log_ratio, copying=False)
            ratios.append((bounded.log_ratio, bounded.noise))
    return ratios


def lower_bound_seconds(replicates: Sequence[Replicate], reported: LogRatios, clock: str) -> list[tuple[Role, float]]:
    """(role, seconds per call) of each replicate: baselines on the parent's clock, the candidate from the bound.

    clock: name of the clock that the verdict would have used.
    """
    rows: list[tuple[Role, float]] = []
    most = estimates.proven_with_host(replicates)
    for replicate, (log_ratio, _) in zip(replicates, lower_bound_ratios(replicates, reported), strict=True):
        seconds = {role: estimates.parent_seconds(replicate, (role,), clock, most) for role in BASELINES}
        middle = [(role, statistics.median(row)) for role, row in seconds.items()]
        base = math.sqrt(math.prod(s for _, s in middle))
        rows += [*middle, (Role.CANDIDATE, base / math.exp(log_ratio))]
    return rows


def _claimed(replicate: Replicate) -> float:
    """Upper bound on a CPU gain: the gain by the worker's own clock, by median or mean."""
    claims = [estimates.log_ratios([replicate], clock)[0].log_ratio for clock in ("worker", "worker_mean")]
    return max((ratio for ratio in claims if math.isfinite(ratio)), default=math.inf)


def _isolated_binds(replicates: Sequence[Replicate], reported: LogRatios) -> bool:
    """Return True if isolated calls in all replicates prove less than MIN_SHARE of the reported gain, beyond their
    scatter.
    """
    if any(replicate.device.device_only for replicate in replicates):
        return True
    rows = [
        (isolated[0] - log_ratio, isolated_error(replicate))
        for replicate, log_ratio in zip(replicates, reported, strict=True)
        for isolated in isolated_ratios(replicate)
    ]
    if not rows:
        return False
    short = statistics.fmean(apart for apart, _ in rows)
    error = math.sqrt(math.fsum(error * error for _, error in rows)) / len(rows)
    return short + ERRORS * error < math.log(MIN_SHARE)


# --- batching on a CPU


def batching_flag(replicates: Sequence[Replicate], clock: str) -> Flag | None:
    """The flag for a candidate on a CPU that gains by batching across calls. clock: that of the reported ratio.

    All inputs of a round are in memory from its first call on, and one pass over all of them may take hardly longer
    than one call. An isolated call must show the same saving, within the tolerance of _unknown(). With a single core,
    rounds of one call are used instead. Replicates whose rounds all had one call are left out.
    """
    replicates = [replicate for replicate in replicates if replicate.isolated]
    if not replicates:
        return None
    if all(replicate.handoffs_s for replicate in replicates):
        return _by_isolated_calls(replicates, clock)
    rows = [_saved_s(replicate, clock) for replicate in replicates]
    among, isolated, scatter = (statistics.median(row[column] for row in rows) for column in range(3))
    if batching_gain(among, max(isolated, 0.0), COLD_S + 2 * scatter, ROUNDS_PART) <= 0.0:
        return None
    message = wording.saved_times(back_to_back_s=among, isolated_s=isolated)
    return _batched(message, {"saved_among_s": among, "saved_isolated_s": isolated, "scatter_s": scatter})


def _batched(message: str, evidence: dict[str, float]) -> Flag:
    return Flag(code="batching", severity="warn", message=message, evidence=evidence)


def _by_isolated_calls(replicates: Sequence[Replicate], clock: str) -> Flag | None:
    """Judge by the mean, as the ratio does: a candidate that batches only in some processes raises it."""
    measured = list(zip(replicates, estimates.log_ratios(replicates, clock), strict=True))
    saved = [_parts(replicate, ratio) for replicate, ratio in measured]
    apart = math.sqrt(statistics.fmean(_apart(replicate) ** 2 for replicate in replicates))
    unknown = [_unknown(replicate, ratio.noise, apart) for replicate, ratio in measured]
    beyond = [batching_gain(*parts, most) for parts, most in zip(saved, unknown, strict=True)]
    if statistics.fmean(beyond) <= CACHE_SHARE:
        return None
    among, isolated = map(statistics.fmean, zip(*saved, strict=True))
    message = wording.saved_shares(back_to_back=among, isolated=isolated)
    return _batched(message, {"part_among": among, "part_isolated": isolated})


def ratios_of_isolated_calls(replicates: Sequence[Replicate], clock: str) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio), of which a call saves no larger part back to back than isolated."""
    ratios = []
    for replicate, ratio in zip(replicates, estimates.log_ratios(replicates, clock), strict=True):
        among = -math.expm1(-ratio.log_ratio)
        saved = min(among, _parts(replicate, ratio)[1]) if replicate.isolated else among
        ratios.append((-math.log1p(-saved), ratio.noise))
    return ratios


def _parts(replicate: Replicate, ratio: stats.ReplicateRatio) -> tuple[float, float]:
    """Savings of a candidate's call as fractions of a baseline's: back to back, and isolated."""
    base, net = _base_s(replicate)
    return -math.expm1(-ratio.log_ratio), (base - _isolated_s(replicate, Role.CANDIDATE)) / net


def _isolated_s(replicate: Replicate, role: Role) -> float:
    """Seconds of the role's isolated call: the lower quartile of its rounds. Other programs can only make them longer,
    and a call on its own cannot be shorter than the work that it does. A candidate's handoff beyond the baselines' is
    part of its call: a bent clock only moves time there, also if it is bent in some rounds alone.
    """
    own_s = _quartile(replicate.isolated[role])
    if role is not Role.CANDIDATE or not replicate.handoffs_s:
        return own_s
    usual_s = [_quartile(_whole_s(replicate, each)) - _quartile(replicate.isolated[each]) for each in BASELINES]
    return max(own_s, _quartile(_whole_s(replicate, role)) - statistics.fmean(usual_s))


def _quartile(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 4]


def _whole_s(replicate: Replicate, role: Role) -> list[float]:
    """Seconds of the role's isolated call in each round, with its handoff."""
    own, beyond = replicate.isolated[role], replicate.handoffs_s.get(role)
    return [*map(operator.add, own, beyond)] if beyond else own


def _base_s(replicate: Replicate) -> tuple[float, float]:
    """Seconds of a baseline's isolated call, as measured, and without the cost of a round if it is a whole one."""
    base = math.sqrt(math.prod(_isolated_s(replicate, role) for role in BASELINES))
    cost_s = 0.0 if replicate.handoffs_s else replicate.overhead.fixed_s
    return base, max(base - cost_s, MIN_NET_SHARE * base)


def _apart(replicate: Replicate) -> float:
    """Difference of the baselines' isolated calls, logarithmic."""
    first, repeat = (_isolated_s(replicate, role) for role in BASELINES)
    return math.log(first / repeat)


def _unknown(replicate: Replicate, noise: float, apart: float) -> float:
    """Possible difference of both parts without batching: twice the difference of the baselines in either kind of
    rounds, or of their isolated rounds, plus CACHE_SHARE and HANDOFF_S. A candidate gains nothing by making its own
    times vary. noise: of back-to-back calls, logarithmic. apart: of isolated ones, over all replicates: of a program's
    processes, some are a seventh slower in them, and in one replicate that may be the candidate's alone.
    """
    _, net = _base_s(replicate)
    rows = [sorted(_whole_s(replicate, role)) for role in BASELINES]
    spread_s = max(row[-(len(row) // 4) - 1] - row[len(row) // 4] for row in rows) / 2
    apart_s = abs(_quartile(rows[0]) - _quartile(rows[1]))
    return CACHE_SHARE + HANDOFF_S / net + 2 * (max(apart, apart_s / net, spread_s / net) + abs(noise))


def _saved_s(replicate: Replicate, clock: str) -> tuple[float, float, float]:
    """Seconds that a candidate's call saves (back to back, in rounds of one call), and the difference between the
    baselines in rounds of one call.
    """
    of_role = {role: [estimates.per_call(row, clock) for row in replicate.rounds if row.role is role] for role in Role}
    among = {role: statistics.median(costs) for role, costs in of_role.items()}
    single = {role: min(seconds) for role, seconds in replicate.isolated.items()}
    saved = [baseline_s(cost) - cost[Role.CANDIDATE] for cost in (among, single)]
    return saved[0], saved[1], abs(single[Role.BASELINE] - single[Role.BASELINE_REPEAT])


# --- isolated calls on a CPU


def isolated_ratios(replicate: Replicate) -> list[tuple[float, float]]:
    """(log-ratio, A/A log-ratio) of isolated calls; empty without any."""
    if not replicate.isolated:
        return []
    base, net = _base_s(replicate)
    least = dict.fromkeys(BASELINES, MIN_NET_SHARE * net) | {Role.CANDIDATE: LEAST_NET_SHARE * net}
    took = {role: max(_isolated_s(replicate, role) - base + net, least[role]) for role in Role}
    return [estimates.ratio(took)]


def isolated_error(replicate: Replicate) -> float:
    """Standard error of the log-ratio of isolated calls: from the scatter of each role's rounds, and from the
    difference of the baselines, which shows how much processes differ.
    """
    base, net = _base_s(replicate)
    parts = {role: stats.median_error(_whole_s(replicate, role)) / net for role in replicate.isolated}
    candidate_s = max(_isolated_s(replicate, Role.CANDIDATE) - base + net, LEAST_NET_SHARE * net)
    own = parts[Role.CANDIDATE] * net / candidate_s
    first, repeat = (_quartile(_whole_s(replicate, role)) for role in BASELINES)
    return math.sqrt(own**2 + sum(parts[role] ** 2 for role in BASELINES) / 4 + 0.75 * ((first - repeat) / net) ** 2)


# --- batching on a GPU


def gpu_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Flags for batching on a GPU, and for a gain that no isolated call could confirm."""
    return [*_batching_flags(replicates), *_unverified_flags(replicates)]


def _batching_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Flags if isolated calls cost the candidate more than the baselines in at least half of the replicates: a single
    one may have had a disturbed host, which is not evidence against a candidate.
    """
    hidden_s = [
        [row.hidden_s for row in isolated_evidence(replicate.device)]
        for replicate in replicates
        if replicate.device.device_only
    ]
    if not hidden_s or (hidden := max(statistics.median_low(rows) for rows in zip(*hidden_s, strict=False))) <= 0:
        return []
    return [_batched(wording.isolated_calls_are_slower(hidden), {"hidden_s": hidden})]


def _unverified_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Flags if the candidate gains and isolated calls could not be measured in at least half of the replicates."""
    missing = [
        any(row.gains and not row.isolated for row in isolated_evidence(replicate.device)) for replicate in replicates
    ]
    if not any(missing) or sum(missing) < len(missing) / 2:
        return []
    return [Flag(code="batching_unverified", severity="warn", message=wording.NO_ISOLATED_CALL)]
