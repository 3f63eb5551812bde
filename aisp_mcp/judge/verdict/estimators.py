"""Estimates of seconds per call and of log-ratios per replicate, on each clock. Pure functions.

On a GPU the parent has two estimators, each seconds by role: `device_only`, with the stream gate, and `with_host`.
See timing/gpu_rounds.py for the rounds they come from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import (
    MIN_NET_SHARE,
    DeviceEvidence,
    Replicate,
    Round,
    RoundTiming,
    SecondsByRole,
    baseline_s,
)
from aisp_mcp.judge.protocol.roles import BASELINES, Role

MIN_GAIN = 0.97  # of the slowest role's call: a faster candidate must also make isolated calls
# Tolerated errors in the extra cost of an isolated call. With the host, an honest program, whose calls
# overlap with each other's launches, may save only part of what it saves back to back.
GATE_S, GATE_SHARE, GATE_SCATTER_S = 2e-6, 0.01, 3e-6
HOST_S, HOST_PART, HOST_SCATTER = 5e-6, 0.85, 0.1


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


# --- seconds per call on a GPU


def estimators(replicate: Replicate) -> list[SecondsByRole]:
    """device_only and, if it was measured, with_host; empty on a CPU."""
    return _no_shorter_with_host([row.many for row in isolated_evidence(replicate.device)], replicate.device.gated)


def lower_bounds(replicates: Sequence[Replicate]) -> list[list[SecondsByRole]]:
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


def ratio(seconds: SecondsByRole) -> tuple[float, float]:
    """(log-ratio, A/A log-ratio) of seconds per call of each role."""
    logs = {role: math.log(value) for role, value in seconds.items()}
    first, repeat = (logs[role] for role in BASELINES)
    return (first + repeat) / 2 - logs[Role.CANDIDATE], first - repeat


def between(estimates: Sequence[SecondsByRole], claimed: float, copying: bool) -> stats.ReplicateRatio:
    """The value between device_only and with_host that is nearest to the worker's log-ratio: its clock counts part of
    the host's time.

    The noise is that of the nearer one. copying: the candidate's rounds include copies that the others' do not, so they
    only bound the gain, see lower_bound.py.
    """
    ratios = [ratio(seconds)[0] for seconds in estimates]
    low, high = min(ratios), max(ratios)
    bounded = claimed if copying else min(max(claimed, low), high)
    log_ratio = bounded if math.isfinite(claimed) else low
    return stats.ReplicateRatio(log_ratio, ratio(nearest(estimates, log_ratio))[1], 1, 0)


def nearest(estimates: Sequence[SecondsByRole], log_ratio: float) -> SecondsByRole:
    """The estimator whose ratio is closest."""
    return min(estimates, key=lambda seconds: abs(ratio(seconds)[0] - log_ratio))


# --- log-ratios on each clock


def log_ratios(replicates: Sequence[Replicate], clock: str) -> list[stats.ReplicateRatio]:
    """The candidate's and the A/A log-ratio per replicate on one clock: "parent", "worker" (median of a round's calls)
    or "worker_mean". On a GPU, the parent's clock has separate rounds. Raises UnusableError.
    """
    on_gpu = clock == "parent"
    return [
        _on_gpu(replicate) if on_gpu and replicate.device.device_only else _by_rounds(replicate, clock)
        for replicate in replicates
    ]


def _on_gpu(replicate: Replicate) -> stats.ReplicateRatio:
    try:
        claimed = _by_rounds(replicate, "worker").log_ratio
    except stats.UnusableError:
        claimed = math.nan
    return between(estimators(replicate), claimed, replicate.device.copying)


def _by_rounds(replicate: Replicate, clock: str) -> stats.ReplicateRatio:
    rounds = [(row.role, per_call(row, clock)) for row in replicate.rounds]
    # Impossible times are not missing data: a negative one would lower the mean but not the median.
    if clock != "parent" and any(
        own <= 0 or min(row.timing.durations_ns) < 0 for (_, own), row in zip(rounds, replicate.rounds, strict=True)
    ):
        return stats.ReplicateRatio(math.nan, math.nan, 0, len(rounds))
    return stats.replicate_log_ratio(rounds)


def with_host(replicates: Sequence[Replicate]) -> tuple[list[stats.ReplicateRatio], list[stats.ReplicateRatio]] | None:
    """The log-ratios of GPU rounds that include host time, on the parent's and on the workers' clocks; None if there
    are none.
    """
    if not all(
        replicate.device.with_host and min(replicate.device.worker_with_host.values()) > 0 for replicate in replicates
    ):
        return None
    seconds = (
        [estimators(replicate)[1] for replicate in replicates],
        [replicate.device.worker_with_host for replicate in replicates],
    )
    parent, own = (
        [stats.ReplicateRatio(*ratio(seconds_by_role), 1, 0) for seconds_by_role in clock] for clock in seconds
    )
    return parent, own


def per_call(timed_round: Round, clock: str) -> float:
    """Seconds per call of one round on that clock."""
    if clock == "worker_mean":
        return _mean_s(timed_round.timing)
    return timed_round.net_s if clock == "parent" else timed_round.median_s


def _mean_s(timing: RoundTiming) -> float:
    return math.fsum(timing.durations_ns) / timing.count / 1e9


def parent_seconds(replicate: Replicate, roles: Sequence[Role], clock: str) -> list[float]:
    """Seconds per call of these roles on the parent's clock: of each round; on a GPU, of the estimator that counts."""
    if not (estimates := estimators(replicate)):
        return [row.net_s for row in replicate.rounds if row.role in roles]
    chosen = estimates[1] if clock == "with_host" else nearest(estimates, _on_gpu(replicate).log_ratio)
    return [chosen[role] for role in roles]


def parent_resolution(replicates: Sequence[Replicate]) -> float:
    """Relative resolution of the parent's clock on a CPU: the worst role's, in the median replicate; 0 on a GPU."""
    if any(replicate.device.device_only for replicate in replicates):
        return 0.0
    worst = [
        max(replicate.overhead.resolution(row.net_s, row.timing.count) for row in replicate.rounds)
        for replicate in replicates
    ]
    return stats.quantile(worst, 0.5)
