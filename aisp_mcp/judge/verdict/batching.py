"""Compare isolated with back-to-back calls, to find gains from processing several calls at once. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import MIN_NET_SHARE, Replicate, baseline_s
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import estimators
from aisp_mcp.judge.verdict.estimators import batching_gain, isolated_evidence

CACHE_SHARE = 0.02  # fraction of a call that warmer caches may save back to back
HANDOFF_S = 0.5e-6  # error of the handoff cost
MIN_SHARE = 1e-3  # of a baseline's call: minimum net time, so that its logarithm exists
COLD_S = 50e-6  # possible cost of cold caches in a round of one call
ROUNDS_PART = 0.5  # share of the back-to-back gain that must show in rounds of one call, whose start-up costs far more


# --- on a CPU


def finding(replicates: Sequence[Replicate], clock: str) -> Flag | None:
    """The flag for a candidate on a CPU that gains by batching across calls. clock: that of the reported ratio.

    All inputs of a round are in memory from its first call on, and one pass over all of them may take hardly longer
    than one call. An isolated call must show the same saving, within the tolerance of _unknown(). With a single core,
    rounds of one call are used instead. Replicates whose rounds all had one call do not count.
    """
    replicates = [replicate for replicate in replicates if replicate.isolated]
    if not replicates:
        return None
    if all(replicate.handoff_s is not None for replicate in replicates):
        return _by_isolated_calls(replicates, clock)
    rows = [_saved_s(replicate, clock) for replicate in replicates]
    among, isolated, scatter = (statistics.median(row[column] for row in rows) for column in range(3))
    if batching_gain(among, max(isolated, 0.0), COLD_S + 2 * scatter, ROUNDS_PART) <= 0.0:
        return None
    message = f"back-to-back calls save {1e6 * among:.0f} µs, isolated calls {1e6 * isolated:.0f} µs"
    return _flag(message, {"saved_among_s": among, "saved_isolated_s": isolated, "scatter_s": scatter})


def _flag(message: str, evidence: dict[str, float]) -> Flag:
    message = f"Batching across calls: {message}. The gain of isolated calls counts."
    return Flag(code="batching", severity="warn", message=message, evidence=evidence)


def _by_isolated_calls(replicates: Sequence[Replicate], clock: str) -> Flag | None:
    """Judge by the mean, as the ratio does: a candidate that batches only in some processes raises it."""
    measured = list(zip(replicates, estimators.log_ratios(replicates, clock), strict=True))
    saved = [_parts(replicate, ratio) for replicate, ratio in measured]
    unknown = [_unknown(replicate, ratio.noise) for replicate, ratio in measured]
    beyond = [batching_gain(*parts, most) for parts, most in zip(saved, unknown, strict=True)]
    if statistics.fmean(beyond) <= CACHE_SHARE:
        return None
    among, isolated = map(statistics.fmean, zip(*saved, strict=True))
    message = f"back-to-back calls save {100 * among:.0f} %, isolated calls {100 * isolated:.0f} %"
    return _flag(message, {"part_among": among, "part_isolated": isolated})


def _parts(replicate: Replicate, ratio: stats.ReplicateRatio) -> tuple[float, float]:
    """Savings of a candidate's call as fractions of a baseline's: back to back, and isolated."""
    base, net = _base_s(replicate)
    return -math.expm1(-ratio.log_ratio), (base - statistics.median(replicate.isolated[Role.CANDIDATE])) / net


def _base_s(replicate: Replicate) -> tuple[float, float]:
    """Seconds of a baseline's isolated call, with and without its handoff."""
    base = math.sqrt(math.prod(statistics.median(replicate.isolated[role]) for role in BASELINES))
    cost_s = replicate.overhead.fixed_s if replicate.handoff_s is None else replicate.handoff_s
    return base, max(base - cost_s, MIN_NET_SHARE * base)


def _unknown(replicate: Replicate, noise: float) -> float:
    """Possible difference of both parts without batching: twice the difference of the baselines in either kind of
    rounds, or of their isolated rounds, plus CACHE_SHARE and HANDOFF_S. A candidate gains nothing by making its own
    times vary. noise: of back-to-back calls, logarithmic.
    """
    middle = [sorted(replicate.isolated[role]) for role in BASELINES]
    spread = max(math.log(rows[-(len(rows) // 4) - 1] / rows[len(rows) // 4]) / 2 for rows in middle)
    first, repeat = (statistics.median(replicate.isolated[role]) for role in BASELINES)
    apart = abs(math.log(first / repeat))
    return CACHE_SHARE + HANDOFF_S / _base_s(replicate)[1] + 2 * (max(apart, spread) + abs(noise))


def isolated_ratios(replicate: Replicate) -> list[tuple[float, float]]:
    """(log-ratio, A/A log-ratio) of isolated calls; empty without any."""
    if not replicate.isolated:
        return []
    base, net = _base_s(replicate)
    least = dict.fromkeys(BASELINES, MIN_NET_SHARE * net) | {Role.CANDIDATE: MIN_SHARE * net}
    took = {role: max(statistics.median(replicate.isolated[role]) - base + net, least[role]) for role in Role}
    return [estimators.ratio(took)]


def isolated_error(replicate: Replicate) -> float:
    """Standard error of the log-ratio of isolated calls: from the scatter of each role's rounds, and from the
    difference of the baselines, which shows how much processes differ.
    """
    base, net = _base_s(replicate)
    parts = {role: _median_error(seconds) / net for role, seconds in replicate.isolated.items()}
    candidate_s = max(statistics.median(replicate.isolated[Role.CANDIDATE]) - base + net, MIN_SHARE * net)
    own = parts[Role.CANDIDATE] * net / candidate_s
    first, repeat = (statistics.median(replicate.isolated[role]) for role in BASELINES)
    return math.sqrt(own**2 + sum(parts[role] ** 2 for role in BASELINES) / 4 + 0.75 * ((first - repeat) / net) ** 2)


def _median_error(seconds: Sequence[float]) -> float:
    """Standard error of the median of a few values."""
    if len(seconds) < 2:
        return 0.0
    return 1.25 * statistics.stdev(seconds) / math.sqrt(len(seconds))


def ratios(replicates: Sequence[Replicate], clock: str) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio), limited so that a call saves no larger part back to back than isolated.
    Isolated calls can only reduce a gain. They prove no loss, since two processes of one program may differ in them.
    """
    ratios = []
    for replicate, ratio in zip(replicates, estimators.log_ratios(replicates, clock), strict=True):
        among = -math.expm1(-ratio.log_ratio)
        saved = min(among, max(_parts(replicate, ratio)[1], 0.0)) if replicate.isolated else among
        ratios.append((-math.log1p(-saved), ratio.noise))
    return ratios


def _saved_s(replicate: Replicate, clock: str) -> tuple[float, float, float]:
    """Seconds that a candidate's call saves (back to back, in rounds of one call), and the difference between the
    baselines in rounds of one call.
    """
    of_role = {role: [estimators.per_call(row, clock) for row in replicate.rounds if row.role is role] for role in Role}
    among = {role: statistics.median(costs) for role, costs in of_role.items()}
    single = {role: min(seconds) for role, seconds in replicate.isolated.items()}
    saved = [baseline_s(cost) - cost[Role.CANDIDATE] for cost in (among, single)]
    return saved[0], saved[1], abs(single[Role.BASELINE] - single[Role.BASELINE_REPEAT])


# --- on a GPU


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
    message = f"Batching across calls: isolated calls are {1e6 * hidden:.0f} µs slower than back-to-back calls."
    return [Flag(code="batching", severity="warn", message=message, evidence={"hidden_s": hidden})]


def _unverified_flags(replicates: Sequence[Replicate]) -> list[Flag]:
    """Flags if the candidate gains and isolated calls could not be measured in at least half of the replicates."""
    missing = [
        any(row.gains and not row.isolated for row in isolated_evidence(replicate.device)) for replicate in replicates
    ]
    if not any(missing) or sum(missing) < len(missing) / 2:
        return []
    message = "No isolated call could be measured: the gain may come from batching across calls."
    return [Flag(code="batching_unverified", severity="warn", message=message)]
