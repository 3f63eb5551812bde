"""First step of a verdict: choose the clock, and compute the ratios per replicate on it. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records.measurement import Clocks
from aisp_mcp.judge.records.verdict import Flag
from aisp_mcp.judge.statistics import UnusableError
from aisp_mcp.judge.verdict import estimators
from aisp_mcp.judge.verdict.wording import format_percent, format_ratio

DELTA = 0.05
# On a GPU, where up to a hundredth of a round can be hidden at its ends: both together must stay below 5 %.
DEVICE_DELTA = 0.04

Ratios = list[tuple[float, float]]  # (log-ratio, A/A log-ratio) per replicate


@dataclass(frozen=True)
class Estimate:
    """Ratios per replicate on the clock that counts.

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
    """The ratios on the clock that counts, with flags about the clocks after the given ones.

    has_parent_clock: the parent's clock bounds the workers' own. Raises UnusableError.
    """
    by_clock = {clock: estimators.log_ratios(replicates, clock) for clock in ("parent", "worker", "worker_mean")}
    log_ratios = {clock: [ratio.log_ratio for ratio in ratios] for clock, ratios in by_clock.items()}
    on_gpu = any(replicate.device.device_only for replicate in replicates)
    resolution = estimators.parent_resolution(replicates)
    clocks, clock_flags = choose_clock(
        log_ratios["parent"],
        log_ratios["worker"],
        delta=DEVICE_DELTA if on_gpu else max(DELTA - resolution, DELTA / 2),
        worker_mean=log_ratios["worker_mean"],
        smaller=on_gpu,
    )
    if not has_parent_clock:
        clocks, clock_flags = clocks.model_copy(update={"used": "worker"}), []
    elif _disagree(clock_flags) and (with_host := estimators.with_host(replicates)):
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
    message = (
        f"The parent's clock resolves {format_percent(resolution)} of these calls: a gain counts without that part."
    )
    return [Flag(code="clock_resolution_low", severity="warn", message=message, evidence={"resolution": resolution})]


def choose_clock(
    parent: Sequence[float],
    worker: Sequence[float],
    delta: float = DELTA,
    worker_mean: Sequence[float] = (),
    smaller: bool = True,
) -> tuple[Clocks, list[Flag]]:
    """Choose the clock that counts; return it with flags for the reader.

    parent, worker, worker_mean: log-ratios per replicate on the parent's clock over whole rounds, and on the workers'
    own as the median and as the mean of a round's calls. delta: tolerated relative difference of two ratios.

    The workers' clock counts only within delta: its median, which is robust to single disturbed calls, or else its
    mean, which like the parent's clock includes the slow first calls of a round. If neither agrees, the parent's clock
    counts, with the flag clock_disagreement. So a candidate that manipulates its clock gains at most that tolerance.
    smaller: the smaller ratio counts instead of the parent's. On noisy clocks this makes the mean of identical programs
    less than 1; it is for clocks of which either may count too much, as on a GPU. A worker without usable numbers
    disagrees. Raises UnusableError if the parent has none.
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
    text = "nothing usable" if worker_log is None else f"{format_ratio(worker_log)}x"
    which = "smaller" if smaller else "parent's"
    message = f"The workers' own clocks show {text}, the parent's {format_ratio(parent_log)}x: the {which} counts."
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
