"""First step of a verdict: seconds per call on each clock, the clock that the verdict uses, and the ratios on it.

On a GPU the parent has two estimators, each seconds by role: `device_only`, with the stream gate, and `with_host`.
See timing/gpu/schedule.py for the rounds they come from. All functions are pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import (
    MIN_NET_SHARE,
    DeviceEvidence,
    Overhead,
    Replicate,
    Round,
    RoundCost,
    RoundTiming,
    SecondsByRole,
    baseline_s,
)
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.measurement import Clocks
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.statistics import UnusableError
from aisp_mcp.judge.verdict import wording

# --- calibrated constants

# Largest relative difference between two clocks' ratios at which the worker's clock is believed. A forged clock gains
# at most that much. Chosen: 5 % is what decision 21 also leaves unproven.
DELTA = 0.05
# Share of the rounds that other programs hardly lengthen. Measured beside two busy loops on two cores: in 20
# replicates, the lower quartile of what rounds of nine calls took beyond them was at most 60 µs above that of single
# calls, and the median up to 180 µs.
LOW = 0.25
# The same on a GPU, where up to a hundredth of a round can be hidden at its ends (measured on an H200 once the device
# itself signalled the end of a round): both together stay below 5 %.
DEVICE_DELTA = 0.04

# Share of the slowest role's call: only a candidate below it gains enough to need isolated calls. Chosen: a gain of
# less than 3 % is below what the two clocks may differ by.
MIN_GAIN = 0.97
# Tolerated error of an isolated call's extra cost behind the gate: seconds, and a share of a call; GATE_SCATTER_S is
# the most that the baselines' scatter adds. Turns vary by 0.1 to 0.5 µs (decision 20, results/h200-calls-handed.json);
# chosen with room for that.
GATE_S, GATE_SHARE, GATE_SCATTER_S = 2e-6, 0.01, 3e-6
# The same with the host: seconds, the share of the back-to-back gain that must show, and a share of the baseline's
# call instead of its scatter. Chosen: an honest program, whose calls overlap with each other's launches, may save only
# part of what it saves back to back; the lower bound of decision 21 limits what this leaves.
HOST_S, HOST_PART, HOST_SCATTER = 5e-6, 0.85, 0.1
# Level of the two-sided interval whose lower end limits what host time may explain. Chosen: as an interval that errs
# upwards in one of twenty comparisons.
HOST_LEVEL = 0.90
# Rounds of a program, per replicate, that are discarded because the device was not idle before them. Chosen: a
# candidate for which more are discarded proves no gain, so a higher number only takes longer.
MAX_DISCARDED = 6

Ratios = list[tuple[float, float]]  # (log-ratio, A/A log-ratio) per replicate


@dataclass(frozen=True)
class Estimate:
    """Ratios per replicate on the clock that the verdict uses.

    flags: all flags so far. seconds: (role, seconds per call) that replace the times of that clock; empty if not
    needed.
    """

    ratios: Ratios
    clocks: Clocks
    flags: list[Flag]
    seconds: Sequence[tuple[Role, float]] = ()

    @property
    def log_ratios(self) -> list[float]:
        return [log_ratio for log_ratio, _ in self.ratios]


def estimate(replicates: Sequence[Replicate], flags: Sequence[Flag], has_parent_clock: bool) -> Estimate:
    """The ratios on the clock that the verdict uses, with flags about the clocks after the given ones.

    has_parent_clock: the parent's clock bounds the workers' own. Raises UnusableError.
    """
    by_clock = {clock: log_ratios(replicates, clock) for clock in ("parent", "worker", "worker_mean")}
    logs = {clock: [ratio.log_ratio for ratio in ratios] for clock, ratios in by_clock.items()}
    on_gpu = any(replicate.device.device_only for replicate in replicates)
    resolution = parent_resolution(replicates)
    clocks, clock_flags = choose_clock(
        logs["parent"],
        logs["worker"],
        delta=DEVICE_DELTA if on_gpu else max(DELTA - resolution, DELTA / 2),
        worker_mean=logs["worker_mean"],
        smaller=on_gpu,
    )
    if not has_parent_clock:
        clocks, clock_flags = clocks.model_copy(update={"used": "worker"}), []
    elif _disagree(clock_flags) and (with_host := ratios_with_host(replicates)):
        # Device events after a flush include part of the host time. In rounds that include all of it, both clocks must
        # agree.
        parent, worker = ([ratio.log_ratio for ratio in ratios] for ratios in with_host)
        host_clocks, host_flags = choose_clock(parent, worker, delta=DELTA)
        if not _disagree(host_flags):
            by_clock["with_host"], clock_flags = with_host[0], host_flags
            clocks = host_clocks.model_copy(update={"used": "with_host"})
    return Estimate(
        [(ratio.log_ratio, ratio.noise) for ratio in by_clock[clocks.used]],
        clocks,
        [*flags, *clock_flags, *(_resolution_flags(resolution) if has_parent_clock else [])],
    )


def _disagree(flags: Sequence[Flag]) -> bool:
    return any(flag.code == "clock_disagreement" for flag in flags)


def _resolution_flags(resolution: float) -> list[Flag]:
    """A flag if the calls are short compared to the loop around them."""
    if resolution <= DELTA:
        return []
    message = wording.low_resolution(resolution)
    return [Flag(code="clock_resolution_low", severity="warn", message=message, evidence={"resolution": resolution})]


def choose_clock(
    parent: Sequence[float],
    worker: Sequence[float],
    delta: float = DELTA,
    worker_mean: Sequence[float] = (),
    smaller: bool = True,
) -> tuple[Clocks, list[Flag]]:
    """Choose the clock that the verdict uses; return it with flags for the reader.

    parent, worker, worker_mean: log-ratios per replicate on the parent's clock over whole rounds, and on the workers'
    own as the median and as the mean of a round's calls. delta: tolerated relative difference of two ratios.

    The workers' clock is used only within delta: its median, which is robust to single disturbed calls, or else its
    mean, which like the parent's clock includes the slow first calls of a round. If neither agrees, the parent's clock
    is used, with the flag clock_disagreement. So a candidate that manipulates its clock gains at most that tolerance.
    smaller: the smaller ratio is used instead of the parent's. On noisy clocks this makes the mean of identical
    programs less than 1; it is for clocks of which either may count too much, as on a GPU. A worker without usable
    numbers disagrees. Raises UnusableError if the parent has none.
    """
    parent_log = fmean(stats.usable(parent))
    name = "worker"
    worker_log, difference = _worker_ratio(worker, len(parent), parent_log)
    agree = difference is not None and difference <= delta
    if worker_mean and not agree:
        mean_log, mean_difference = _worker_ratio(worker_mean, len(parent), parent_log)
        if mean_difference is not None and mean_difference <= delta:
            name, worker_log, difference, agree = "worker_mean", mean_log, mean_difference, True
    below = smaller and worker_log is not None and worker_log < parent_log
    clocks = Clocks(
        used=name if agree or below else "parent",
        ratio_parent=math.exp(parent_log),
        ratio_worker=None if worker_log is None else math.exp(worker_log),
        disagreement=difference,
        delta=delta,
    )
    if agree:
        return clocks, []
    message = wording.clocks_disagree(log_worker=worker_log, log_parent=parent_log, uses_smaller=smaller)
    evidence = {"ratio_parent": math.exp(parent_log), "tolerance": delta}
    return clocks, [Flag(code="clock_disagreement", severity="warn", message=message, evidence=evidence)]


def _worker_ratio(worker: Sequence[float], replicates: int, parent_log: float) -> tuple[float | None, float | None]:
    """(mean log-ratio on the workers' clock, relative difference from the parent's); None for absurd values."""
    try:
        worker_log = fmean(stats.usable(worker, least=replicates))
        math.exp(worker_log)
        return worker_log, math.expm1(abs(worker_log - parent_log))
    except (UnusableError, OverflowError):
        return None, None


# --- log-ratios on each clock


def log_ratios(replicates: Sequence[Replicate], clock: str) -> list[stats.ReplicateRatio]:
    """The candidate's and the A/A log-ratio per replicate on one clock: "parent", "worker" (median of a round's calls)
    or "worker_mean". On a GPU, the parent's clock has separate rounds. Raises UnusableError.
    """
    on_gpu, most = clock == "parent", proven_with_host(replicates)
    return [
        _on_gpu(replicate, most) if on_gpu and replicate.device.device_only else _by_rounds(replicate, clock)
        for replicate in replicates
    ]


def proven_with_host(replicates: Sequence[Replicate]) -> float:
    """The log-ratio that the rounds with host time prove, over all replicates. On a busy host, single replicates show
    any ratio, and a worker's forged one would lie within them. Infinite where nothing shows their scatter.
    """
    rows = [row for replicate in replicates if len(row := seconds_by_estimator(replicate)) > 1]
    ratios = [ratio(with_host) for _, with_host in rows]
    try:
        interval = stats.t_interval([log_ratio for log_ratio, _ in ratios], HOST_LEVEL)
    except UnusableError:
        return math.inf
    unknown = interval.half_width
    with suppress(UnusableError):  # two replicates may agree by chance; then their baselines hardly do
        unknown = max(unknown, stats.noise_floor([apart for _, apart in ratios], HOST_LEVEL).half_width)
    return interval.mean - unknown


def _on_gpu(replicate: Replicate, most: float) -> stats.ReplicateRatio:
    try:
        claimed = _by_rounds(replicate, "worker").log_ratio
    except stats.UnusableError:
        claimed = math.nan
    return between(seconds_by_estimator(replicate), claimed, replicate.device.copying, most)


def _by_rounds(replicate: Replicate, clock: str) -> stats.ReplicateRatio:
    rounds = [(row.role, per_call(row, clock)) for row in replicate.rounds]
    # Impossible times are not missing data: a negative one would lower the mean but not the median.
    if clock != "parent" and any(
        own <= 0 or min(row.timing.durations_ns) < 0 for (_, own), row in zip(rounds, replicate.rounds, strict=True)
    ):
        return stats.ReplicateRatio(math.nan, math.nan, 0, len(rounds))
    return stats.replicate_log_ratio(rounds)


def ratios_with_host(
    replicates: Sequence[Replicate],
) -> tuple[list[stats.ReplicateRatio], list[stats.ReplicateRatio]] | None:
    """The log-ratios of GPU rounds that include host time, on the parent's and on the workers' clocks; None if there
    are none.
    """
    if not all(
        replicate.device.with_host and min(replicate.device.worker_with_host.values()) > 0 for replicate in replicates
    ):
        return None
    seconds = (
        [seconds_by_estimator(replicate)[1] for replicate in replicates],
        [replicate.device.worker_with_host for replicate in replicates],
    )
    parent, own = (
        [stats.ReplicateRatio(*ratio(seconds_by_role), 1, 0) for seconds_by_role in clock] for clock in seconds
    )
    return parent, own


def ratio(seconds: SecondsByRole) -> tuple[float, float]:
    """(log-ratio, A/A log-ratio) of seconds per call of each role."""
    logs = {role: math.log(value) for role, value in seconds.items()}
    first, repeat = (logs[role] for role in BASELINES)
    return (first + repeat) / 2 - logs[Role.CANDIDATE], first - repeat


def between(
    estimates: Sequence[SecondsByRole], claimed: float, copying: bool, most: float = math.inf
) -> stats.ReplicateRatio:
    """The value between device_only and with_host that is nearest to the worker's log-ratio: its clock counts part of
    the host's time.

    The noise is that of the nearer one. copying: the candidate's rounds include copies that the others' do not, so they
    only bound the gain, see bound.py. most: log-ratio that all rounds with host time prove together.
    """
    ratios = [ratio(seconds)[0] for seconds in estimates]
    low, high = min(ratios), max(ratios[0], min(max(ratios), most))
    bounded = claimed if copying else min(max(claimed, low), high)
    log_ratio = bounded if math.isfinite(claimed) else low
    return stats.ReplicateRatio(log_ratio, ratio(nearest(estimates, log_ratio))[1], 1, 0)


def nearest(estimates: Sequence[SecondsByRole], log_ratio: float) -> SecondsByRole:
    """The estimator whose ratio is closest."""
    return min(estimates, key=lambda seconds: abs(ratio(seconds)[0] - log_ratio))


def dropped_apart(replicates: Sequence[Replicate]) -> float:
    """The log-ratio where inputs are in the caches and outputs are released at once, minus that of timed rounds, on the
    workers' own clocks: the part of the mean over replicates that its standard error does not explain. 0 without such
    rounds.

    In timed rounds outputs are kept until they are compared, so each call writes to memory that no earlier one has
    left in the caches, and reads inputs that another process wrote. A caller who drops results sees another ratio: 2.0
    instead of 1.8 for results of 512 KiB in 150 µs; one who has just made the inputs 4.5 instead of 4.2.
    """
    apart = []
    for replicate in replicates:
        if replicate.dropped_s and min(map(min, replicate.dropped_s.values())) > 0:
            dropped = ratio({role: statistics.median(row) for role, row in replicate.dropped_s.items()})[0]
            apart.append(dropped - _by_rounds(replicate, "worker").log_ratio)
    if not apart or not all(map(math.isfinite, apart)):
        return 0.0
    mean = fmean(apart)
    error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return math.copysign(math.sqrt(max(mean * mean - error * error, 0.0)), mean)


# --- seconds per call on each clock


def per_call(timed_round: Round, clock: str) -> float:
    """Seconds per call of one round on that clock."""
    if clock == "worker_mean":
        return _mean_s(timed_round.timing)
    return timed_round.net_s if clock == "parent" else timed_round.median_s


def _mean_s(timing: RoundTiming) -> float:
    return math.fsum(timing.durations_ns) / timing.count / 1e9


def parent_seconds(replicate: Replicate, roles: Sequence[Role], clock: str, most: float) -> list[float]:
    """Seconds per call of these roles on the parent's clock: of each round; on a GPU, of the estimator used.

    most: of proven_with_host for all replicates.
    """
    if not (estimates := seconds_by_estimator(replicate)):
        return [row.net_s for row in replicate.rounds if row.role in roles]
    chosen = estimates[1] if clock == "with_host" else nearest(estimates, _on_gpu(replicate, most).log_ratio)
    return [chosen[role] for role in roles]


def parent_resolution(replicates: Sequence[Replicate]) -> float:
    """Relative resolution of the parent's clock on a CPU: the worst role's, in the median replicate; 0 on a GPU.

    Of a role's rounds the median counts, as for its time: little is left of the time of a round that was interrupted.
    """
    if any(replicate.device.device_only for replicate in replicates):
        return 0.0
    worst = []
    for replicate in replicates:
        of_role: dict[Role, list[float]] = {row.role: [] for row in replicate.rounds}
        for row in replicate.rounds:
            of_role[row.role].append(replicate.overhead.resolution(row.net_s, row.timing.count))
        worst.append(max(map(statistics.median, of_role.values())))
    return stats.quantile(worst, 0.5)


# --- seconds per call on a GPU


def seconds_by_estimator(replicate: Replicate) -> list[SecondsByRole]:
    """device_only and, if it was measured, with_host; empty on a CPU."""
    return _no_shorter_with_host([row.many for row in isolated_evidence(replicate.device)], replicate.device.gated)


def bounded_seconds(replicates: Sequence[Replicate]) -> list[list[SecondsByRole]]:
    """The estimators of each replicate, with the candidate's call at least isolated minus its extra cost.

    With the stream gate, that is the extra cost of the same replicate's baselines. With the host, baselines vary more,
    so it is the median over all replicates; and the call takes at least as long as on the device alone.
    """
    rows = [isolated_evidence(replicate.device) for replicate in replicates]
    scattered = [cost for row in rows for evidence in row if evidence.part < 1.0 for cost in evidence.costs_s]
    usual_s = statistics.median(scattered) if scattered else None
    all_bounds = []
    for replicate, row in zip(replicates, rows, strict=True):
        bounds = [evidence.lower_bound(usual_s if evidence.part < 1.0 else None) for evidence in row]
        all_bounds.append(_no_shorter_with_host(bounds, replicate.device.gated))
    return all_bounds


def _no_shorter_with_host(estimates: list[SecondsByRole], gated: bool) -> list[SecondsByRole]:
    """Correct estimates with host time that are below the device's own: a host can only add time."""
    least_s = estimates[0][Role.CANDIDATE] if estimates and gated else 0.0
    return [seconds | {Role.CANDIDATE: max(seconds[Role.CANDIDATE], least_s)} for seconds in estimates]


# --- isolated calls on a GPU


@dataclass(frozen=True)
class IsolatedCallEvidence:
    """Isolated and back-to-back calls on one estimator, seconds per call of each role.

    isolated: includes the cost that all roles share; empty if none were measured. known_s: error of the comparison, in
    addition to the scatter of the baselines, which counts up to scatter_s. part: share of the back-to-back gain that
    must show.
    """

    many: SecondsByRole
    isolated: SecondsByRole
    known_s: float
    scatter_s: float
    part: float = 1.0

    @property
    def hidden_s(self) -> float:
        """Seconds certainly gained by batching across calls; 0 without isolated calls."""
        if not self.isolated:
            return 0.0
        apart = self.costs_s[0] - self.costs_s[1]
        unknown_s = self.known_s + min(abs(apart), self.scatter_s)
        return batching_gain(_saved(self.many), _saved(self.isolated), unknown_s, self.part)

    @property
    def gains(self) -> bool:
        """Return True if there is a gain that isolated calls could confirm."""
        return self.many[Role.CANDIDATE] < MIN_GAIN * max(self.many.values())

    @property
    def costs_s(self) -> list[float]:
        """Extra cost of an isolated call, by both baselines."""
        return [self.isolated[role] - self.many[role] for role in BASELINES] if self.isolated else []

    def lower_bound(self, cost_s: float | None = None) -> SecondsByRole:
        """Seconds per call; the candidate's is at least isolated minus cost_s, or minus the baselines' cost.

        The baselines differ as much as their isolated calls do, which for short calls is more than back to back, or as
        back to back if that is more: two of the few isolated calls can take the same number of a clock's ticks. With
        host time only the back-to-back calls count, since there are even fewer isolated calls of baselines.
        """
        if not self.isolated:
            return self.many
        if cost_s is None:
            cost_s = sum(self.costs_s) / 2
        base_s = baseline_s(self.many)
        most_s = (1.0 - MIN_NET_SHARE) * base_s
        known = [self.many, self.isolated] if self.part == 1.0 else [self.many]
        differences = [row[Role.BASELINE] - row[Role.BASELINE_REPEAT] for row in known]
        apart_s = max(min(max(differences, key=abs) / 2, most_s), -most_s)
        candidate_s = max(self.many[Role.CANDIDATE], self.isolated[Role.CANDIDATE] - cost_s)
        return {
            Role.BASELINE: base_s + apart_s,
            Role.BASELINE_REPEAT: base_s - apart_s,
            Role.CANDIDATE: candidate_s,
        }


def _saved(seconds: SecondsByRole) -> float:
    return baseline_s(seconds) - seconds[Role.CANDIDATE]


def batching_gain(among: float, isolated: float, unknown: float, part: float = 1.0) -> float:
    """Back-to-back gain per call that isolated calls do not show, beyond `unknown`; 0 without evidence of it.

    among, isolated: savings of a call against the baseline's, in seconds or as fractions of it. part: share of the
    back-to-back savings that an isolated call must show.
    """
    return max(among - isolated - unknown, 0.0) if part * among - isolated > unknown else 0.0


def isolated_evidence(device: DeviceEvidence) -> list[IsolatedCallEvidence]:
    """Evidence on each estimator of a replicate on a GPU."""
    evidence = []
    if many := device.device_only:
        share_s = GATE_SHARE * baseline_s(many)
        known_s = (HOST_S if device.copying else GATE_S) + share_s
        gated = IsolatedCallEvidence(many, device.isolated, known_s, GATE_SCATTER_S + share_s)
        evidence.append(gated if device.gated else _with_host(many, device.isolated))
    if many := device.with_host:
        evidence.append(_with_host(many, device.isolated_with_host))
    return evidence


def _with_host(many: SecondsByRole, isolated: SecondsByRole) -> IsolatedCallEvidence:
    """Evidence with host time. Instead of the scatter of the baselines, of which there are few isolated calls, the
    tolerance includes a fixed share of the baseline's time.
    """
    return IsolatedCallEvidence(many, isolated, HOST_S + HOST_SCATTER * baseline_s(many), 0.0, HOST_PART)


# --- the seconds that a verdict may use on a GPU


def with_usable_seconds(device: DeviceEvidence) -> DeviceEvidence:
    """The evidence with the seconds that a verdict may use instead of the measured ones.

    Copies that only some programs' rounds contain are left out: of a baseline, whose own clock shows them, all; of a
    candidate, which may skip them, at most MIN_NET_SHARE of its call, and not from isolated calls, whose outputs are
    read one by one. If the device was rarely idle before the candidate's rounds, other work may be in them: they prove
    no gain, so the candidate's call counts as long as the baselines'. Logs from before the measured seconds were kept
    contain the usable ones, which stay as they are.
    """
    only, isolated = _without_copies(device.device_only, device.isolated, device.copies_s)
    host, isolated_host = _without_copies(device.with_host, device.isolated_with_host, device.copies_with_host_s)
    if only and device.discarded_rounds > MAX_DISCARDED:
        only, host = only | {Role.CANDIDATE: math.sqrt(math.prod(only[role] for role in BASELINES))}, {}
    return replace(
        device,
        device_only=only,
        with_host=host,
        isolated=isolated,
        isolated_with_host=isolated_host,
        copies_s={},
        copies_with_host_s={},
        discarded_rounds=0,
    )


def _without_copies(
    many: SecondsByRole, isolated: SecondsByRole, copies: SecondsByRole
) -> tuple[SecondsByRole, SecondsByRole]:
    """Seconds of back-to-back and of isolated calls, without these seconds of copies."""
    many, isolated = dict(many), dict(isolated)
    for role, copy_s in copies.items():
        if role is Role.CANDIDATE:
            many[role] -= min(copy_s, many[role] * (1 - MIN_NET_SHARE))
            continue
        many[role] -= copy_s
        if isolated:
            isolated[role] -= copy_s
    return many, isolated


# --- overhead of rounds on a CPU


def fit_overhead(rounds: Sequence[RoundCost]) -> Overhead:
    """Fit the overhead to rounds of the baselines only, since the candidate cannot influence their clock.

    rounds: of one call, which show the fixed cost, and of several, which show the additional cost per call. Other
    programs can only lengthen a round, and a round of a few long calls shows little of what is added to each: the cost
    per call is what the shorter quarter of these rounds shows beyond the shorter quarter of the others, both at the end
    of their standard error that makes it small. What is not subtracted can only move a ratio towards 1.
    """
    beyond = [(max(cost.elapsed_s - cost.inside_s, 0.0), cost.calls) for cost in rounds]
    single = [seconds for seconds, calls in beyond if calls == 1]
    fixed = statistics.median(single) if single else min((seconds for seconds, _ in beyond), default=0.0)
    most = _lower_quartile(single, 1.0)
    more = [(seconds - most) / (calls - 1) for seconds, calls in beyond if calls > 1]
    per_call = max(_lower_quartile(more, -1.0), 0.0) if single and more else 0.0
    return Overhead(max(fixed - per_call, 0.0), per_call)


def _lower_quartile(values: Sequence[float], errors: float) -> float:
    """The lower quartile, that many of its standard errors further up, as a rank among the values; 0 without any."""
    if not values:
        return 0.0
    share = LOW + errors * math.sqrt(LOW * (1 - LOW) / len(values))
    return stats.quantile(values, min(max(share, 0.0), 1.0))
