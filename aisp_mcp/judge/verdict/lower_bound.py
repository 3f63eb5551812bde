"""Lower bound on the speedup from parent-side timing. Pure functions.

Back-to-back calls may speed each other up. The bound does not exceed the gain of isolated calls
(parent/timing/cpu.py, verifier/handoff_gpu.py).

On a CPU, the cost of the loop around the calls is subtracted from all rounds, and a candidate could skip the loop, so
for a short call that part does not count as a gain. On a GPU nothing is subtracted, but not every candidate can have
rounds without copies (parent/timing/gpu_rounds.py); otherwise, all copies count against it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import batching, estimators

MIN_SHARE = 1 / 1.05  # of the reported ratio: a smaller lower bound replaces it
NEARLY_ALL = 0.995
ERRORS = 2.0  # standard errors by which isolated calls must fall short
CLOCK = "lower_bound"  # name of this clock in a result

LogRatios = Sequence[float]  # per replicate, on the clock of the ratio that is about to be reported


def finding(replicates: Sequence[Replicate], reported: LogRatios) -> Flag | None:
    """The flag for a lower bound that is clearly less than the reported ratio, which then counts instead.

    Clearly means less than MIN_SHARE of it. On a CPU, that much is already conceded to the loop and to isolated calls.
    """
    bound = math.exp(statistics.fmean(gain for gain, _ in ratios(replicates, reported)))
    estimated = math.exp(statistics.fmean(reported))
    on_gpu = any(replicate.device.device_only for replicate in replicates)
    if bound >= (MIN_SHARE if on_gpu else NEARLY_ALL) * estimated:
        return None
    code = "clock_resolution_low"
    if any(replicate.device.copying for replicate in replicates):
        code, why = "clock_disagreement", "the copies of the candidate's outputs could not be observed"
    elif _isolated_binds(replicates, reported):
        why = "isolated calls gain less"
    elif statistics.fmean(map(_claimed, replicates)) < math.log(NEARLY_ALL) + statistics.fmean(reported):
        why = "the workers' own clocks show less"
    else:
        why = "the calls are as short as the loop around them"
    message = f"The parent's clock proves {bound:.3g}x, not {estimated:.3g}x: {why}. The lower bound counts."
    return Flag(code=code, severity="warn", message=message, evidence={"ratio_lower_bound": bound, "ratio": estimated})


def ratios(replicates: Sequence[Replicate], reported: LogRatios) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio)."""
    ratios = []
    isolated = _isolated_binds(replicates, reported)
    for replicate, on_gpu, log_ratio in zip(replicates, estimators.lower_bounds(replicates), reported, strict=True):
        if not on_gpu:
            skippable = math.log1p(estimators.parent_resolution([replicate]))
            paid = min(log_ratio, _claimed(replicate)) - max(skippable + math.log(MIN_SHARE), 0.0)
            noise = estimators.log_ratios([replicate], "parent")[0].noise
            proven = [
                (max(log_ratio, 0.0), apart) for log_ratio, apart in batching.isolated_ratios(replicate) if isolated
            ]
            ratios.append(min([(paid, noise), *proven]))
        elif replicate.device.copying:
            ratios.append(max(map(estimators.ratio, on_gpu)))
        else:
            bounded = estimators.between(on_gpu, log_ratio, copying=False)
            ratios.append((bounded.log_ratio, bounded.noise))
    return ratios


def _claimed(replicate: Replicate) -> float:
    """Upper bound on a CPU gain: the gain by the worker's own clock, by median or mean."""
    claims = [estimators.log_ratios([replicate], clock)[0].log_ratio for clock in ("worker", "worker_mean")]
    return max((ratio for ratio in claims if math.isfinite(ratio)), default=math.inf)


def _isolated_binds(replicates: Sequence[Replicate], reported: LogRatios) -> bool:
    """Return True if isolated calls in all replicates prove less than MIN_SHARE of the reported gain, beyond their
    scatter.
    """
    if any(replicate.device.device_only for replicate in replicates):
        return True
    rows = [
        (isolated[0] - log_ratio, batching.isolated_error(replicate))
        for replicate, log_ratio in zip(replicates, reported, strict=True)
        for isolated in batching.isolated_ratios(replicate)
    ]
    if not rows:
        return False
    short = statistics.fmean(apart for apart, _ in rows)
    error = math.sqrt(math.fsum(error * error for _, error in rows)) / len(rows)
    return short + ERRORS * error < math.log(MIN_SHARE)


def seconds(replicates: Sequence[Replicate], reported: LogRatios, clock: str) -> list[tuple[Role, float]]:
    """(role, seconds per call) of each replicate: baselines on the parent's clock, the candidate from the bound.

    clock: name of the clock that would have counted.
    """
    rows: list[tuple[Role, float]] = []
    for replicate, (log_ratio, _) in zip(replicates, ratios(replicates, reported), strict=True):
        middle = [(role, statistics.median(estimators.parent_seconds(replicate, (role,), clock))) for role in BASELINES]
        base = math.sqrt(math.prod(s for _, s in middle))
        rows += [*middle, (Role.CANDIDATE, base / math.exp(log_ratio))]
    return rows
