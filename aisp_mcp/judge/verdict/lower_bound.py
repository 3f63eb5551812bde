"""Lower bound on the speedup from parent-side timing. Pure functions.

Back-to-back calls may be short because of each other. The bound is no more than the gain of isolated calls
(parent/timing/cpu.py, verifier/handoff/handoff_gpu.py).

Outputs are copied in the candidate's own process, which may compute into the shared arena instead. On a CPU the cost of
copies is subtracted from its rounds, and rounds without copies show whether it makes them (parent/timing/copy_cost.py).
On a GPU nothing is subtracted, but not every candidate can have rounds without copies (parent/timing/gpu_rounds.py).
If nothing shows it, because the memory of workers cannot be read or a candidate returns one buffer again and again, all
copies count against it. So does, on a CPU, the part of the loop around short calls that the parent's clock cannot
resolve. The clocks disagree then.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.verdict import batching, estimators

MIN_SHARE = 1 / 1.05  # of the reported ratio: a smaller lower bound takes its place
CLOCK = "lower_bound"  # name of this clock in a result

LogRatios = Sequence[float]  # per replicate, on the clock of the ratio that is about to be reported


def finding(replicates: Sequence[Replicate], reported: LogRatios, coarse: bool) -> Flag | None:
    """The flag for a lower bound below MIN_SHARE of the reported ratio: the bound counts then.

    coarse: on a CPU, the parent's clock resolves such short calls badly.
    """
    bound = math.exp(statistics.fmean(gain for gain, _ in ratios(replicates, reported, coarse)))
    estimated = math.exp(statistics.fmean(reported))
    if bound >= MIN_SHARE * estimated:
        return None
    code = "clock_disagreement"
    if _copies_unseen(replicates):
        why = "the copies of the candidate's outputs could not be observed"
    elif coarse:
        why = "the calls are as short as the loop around them"
    else:
        code, why = "clock_resolution_low", "isolated calls gain less"
    message = f"The parent's clock proves {bound:.3g}x, not {estimated:.3g}x: {why}. The lower bound counts."
    return Flag(code=code, severity="warn", message=message, evidence={"ratio_lower_bound": bound, "ratio": estimated})


def _copies_unseen(replicates: Sequence[Replicate]) -> bool:
    return any(
        replicate.device.copying if replicate.device.device_only else replicate.overhead.skipped_copies is None
        for replicate in replicates
    )


def ratios(replicates: Sequence[Replicate], reported: LogRatios, coarse: bool) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio)."""
    ratios = []
    for replicate, on_gpu, log_ratio in zip(replicates, estimators.lower_bounds(replicates), reported, strict=True):
        if not on_gpu:
            paid = stats.replicate_log_ratio(_paid(replicate, coarse))
            ratios.append(min([(paid.log_ratio, paid.noise), *batching.isolated_ratios(replicate)]))
        elif replicate.device.copying:
            ratios.append(max(map(estimators.ratio, on_gpu)))
        else:
            bounded = estimators.between(on_gpu, log_ratio, copying=False)
            ratios.append((bounded.log_ratio, bounded.noise))
    return ratios


def seconds(replicates: Sequence[Replicate], reported: LogRatios, coarse: bool, clock: str) -> list[tuple[Role, float]]:
    """(role, seconds per call) of each replicate: baselines on the parent's clock, the candidate from the bound.

    clock: name of the clock that would have counted.
    """
    rows: list[tuple[Role, float]] = []
    for replicate, (log_ratio, _) in zip(replicates, ratios(replicates, reported, coarse), strict=True):
        middle = [(role, statistics.median(estimators.parent_seconds(replicate, (role,), clock))) for role in BASELINES]
        base = math.sqrt(math.prod(s for _, s in middle))
        rows += [*middle, (Role.CANDIDATE, base / math.exp(log_ratio))]
    return rows


def _paid(replicate: Replicate, coarse: bool) -> list[tuple[Role, float]]:
    """(role, seconds per call) of each round on a CPU. From the candidate's nothing is subtracted but what it is known
    to have paid: no copies that were not observed, and no more than the clock resolves.
    """
    copies, fixed = replicate.overhead.per_call_s, replicate.overhead.fixed_s
    seconds = []
    for row in replicate.rounds:
        net, count = row.net_s, row.timing.count
        paid = net
        if row.role is Role.CANDIDATE and replicate.overhead.skipped_copies is None:
            paid = max(net, min(net + copies, max(row.timing.elapsed_s - fixed, 0.0) / count))
        elif row.role is Role.CANDIDATE and coarse:
            paid = net * (1.0 + replicate.overhead.resolution(net, count))
        seconds.append((row.role, paid))
    return seconds
