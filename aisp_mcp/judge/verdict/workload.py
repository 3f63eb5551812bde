"""The verdict on a workload from those on its regimes. Pure functions.

With the share s of the workload's time and the ratio r of every regime, the workload's ratio is 1 / sum(s / r): what
its time is divided by. Regimes are measured apart, so their variances add, each weighted by the regime's share of the
candidate's time; the degrees of freedom of the sum are those of Welch and Satterthwaite, so that a dozen regimes with
two replicates each give a narrow interval of the whole. The word follows from these numbers as for one pair, with one
exception: no workload is faster in which a regime that matters is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.judge.records.workload import Regime, Workload
from aisp_mcp.judge.statistics import MeanInterval
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.verdict import FLOORS_PER_MARGIN, MIN_MARGIN, SINGLE_MARGIN, WIDEST_SAME, Numbers, word

TRADE_OFF = "trade-off"
# Share of the time, and of the launches, from which a regime matters. Chosen: below a twentieth of the time no regime
# costs the workload more than a few per cent; most launches are what its users wait for, however short each is.
MATTERS, MOST = 0.05, 0.5
NO_GAIN_IS_PROVEN = "no gain is proven by the parent's clock, and bounds show no loss"
_UNUSABLE = (Verdict.INVALID, Verdict.INCORRECT)


@dataclass(frozen=True)
class Measured:
    """One regime and its comparison. seconds: of all its launches in the workload, of the baseline."""

    label: str
    launches: float
    seconds: float
    comparison: Comparison


def judge(
    source: str,
    measured: Sequence[Measured],
    step_share: float | None,
    margin: float | None = None,
    allow_slower: bool = False,
) -> Workload:
    """The workload's verdict. allow_slower: its user accepts a loss in some regime, which is still named."""
    total, launches = (sum(getattr(each, name) for each in measured) for name in ("seconds", "launches"))
    shares = [each.seconds / total for each in measured]
    order = sorted(range(len(measured)), key=lambda at: -shares[at])
    regimes = [_regime(measured[at], shares[at]) for at in order]
    ended = next((each for each in measured if each.comparison.verdict in _UNUSABLE), None)
    unknown = next((each for each in measured if each.comparison.ratio is None), None)
    if ended is not None or unknown is not None:
        stopped = ended or unknown
        assert stopped is not None
        verdict = stopped.comparison.verdict
        sentence = f"{verdict.value}: at {stopped.label}, {stopped.comparison.sentence.partition(': ')[2]}"
        passed = None if ended is None else False
        return Workload(source=source, verdict=verdict.value, passed=passed, sentence=sentence, ratio=None,
                        interval=None, worst=stopped.label, regimes=regimes, step_share=step_share)  # fmt: skip
    numbers = _numbers(measured, shares, margin)
    verdict, reason = word(numbers)
    if any(each.comparison.at_least for each in measured) and _bounds_decide(verdict, measured, shares, margin):
        verdict, reason = Verdict.INCONCLUSIVE, NO_GAIN_IS_PROVEN
    doubtful = None if allow_slower else _doubtful(measured, regimes, launches)
    if verdict is Verdict.FASTER and doubtful:
        verdict, reason = Verdict.INCONCLUSIVE, f"one process pair cannot show that it is not slower at {doubtful}"
    ratio = math.exp(numbers.estimate.mean)
    worst = min(regimes, key=lambda regime: regime.ratio or 0.0)
    slower = [each for each in regimes if each.verdict == Verdict.SLOWER and matters(each, launches)]
    name = TRADE_OFF if verdict is Verdict.FASTER and slower and not allow_slower else verdict.value
    passed = {TRADE_OFF: False, Verdict.SLOWER.value: False, Verdict.INCONCLUSIVE.value: None}.get(name, True)
    bound = "at least " if any(each.comparison.at_least for each in measured) else ""
    low, high = math.exp(numbers.estimate.low), math.exp(numbers.estimate.high)
    parts = [f"{bound}{_times(ratio)} over this workload ({low:.3g}-{high:.3g})"]
    parts += [reason] if reason else []
    shown = slower[0] if slower else worst
    parts.append(f"{'slower' if slower else 'lowest'} at {shown.label}: {_times(shown.ratio or 0)}, "
                 f"{wording.format_percent(shown.share)} of the time")  # fmt: skip
    step_ratio = None if step_share is None else 1 / (1 - step_share + step_share / ratio)
    if step_share is not None and step_ratio is not None:
        parts.append(f"{wording.format_percent(step_share)} of the step: {_times(step_ratio)} of all of it at most")
    return Workload(
        source=source, verdict=name, passed=passed, sentence=f"{name}: {'; '.join(parts)}", ratio=ratio,
        interval=Interval(low=low, high=high, level=numbers.estimate.level), worst=worst.label, regimes=regimes,
        step_share=step_share, step_ratio=step_ratio,
    )  # fmt: skip


def _bounds_decide(
    verdict: Verdict, measured: Sequence[Measured], shares: Sequence[float], margin: float | None
) -> bool:
    """Return True if lower bounds of gains would prove a loss or sameness, as they never do (verdict.without_loss)."""
    if verdict is not Verdict.SLOWER:
        return verdict is Verdict.SAME
    at_best = {"ratio": 1.0, "interval": None}
    without = [
        replace(each, comparison=each.comparison.model_copy(update=at_best))
        if each.comparison.at_least and (each.comparison.ratio or 1.0) < 1
        else each
        for each in measured
    ]
    return word(_numbers(without, shares, margin))[0] is not Verdict.SLOWER


def _doubtful(measured: Sequence[Measured], regimes: Sequence[Regime], launches: float) -> str | None:
    """The regime that matters and lost more than its noise in a single process pair, which cannot show it slower."""
    single = {
        each.label: each.comparison
        for each in measured
        if each.comparison.replicates == 1 and each.comparison.verdict is Verdict.INCONCLUSIVE
    }
    lost = [
        each
        for each in regimes
        if each.label in single and (each.ratio or 1) * (1 + (single[each.label].noise_floor or 0)) < 1
    ]
    return next((each.label for each in lost if matters(each, launches)), None)


def matters(regime: Regime, launches: float) -> bool:
    """Return True if a loss in this regime is one of the workload. launches: of all regimes."""
    return regime.share >= MATTERS or regime.launches >= MOST * launches


def _times(ratio: float) -> str:
    return f"{wording.format_ratio(math.log(ratio))}x" if ratio > 0 else "0x"


def _regime(each: Measured, share: float) -> Regime:
    compared = each.comparison
    return Regime(label=each.label, launches=each.launches, share=share, verdict=compared.verdict.value,
                  ratio=compared.ratio, interval=compared.interval, sentence=compared.sentence)  # fmt: skip


def _numbers(measured: Sequence[Measured], shares: Sequence[float], margin: float | None) -> Numbers:
    logs = [math.log(each.comparison.ratio or 1.0) for each in measured]
    times = [share * math.exp(-value) for share, value in zip(shares, logs, strict=True)]
    weights = [time / sum(times) for time in times]
    mean = -math.log(sum(times))
    level = next((each.comparison.interval.level for each in measured if each.comparison.interval), 0.95)
    sides = [
        (math.log(interval.low), math.log(interval.high)) if (interval := each.comparison.interval) else (value, value)
        for each, value in zip(measured, logs, strict=True)
    ]
    freedom = [max(each.comparison.replicates - 1, 1) for each in measured]
    below = _half([w * (v - low) for w, v, (low, _) in zip(weights, logs, sides, strict=True)], freedom, level)
    above = _half([w * (high - v) for w, v, (_, high) in zip(weights, logs, sides, strict=True)], freedom, level)
    floors = [math.log1p(each.comparison.noise_floor or 0.0) for each in measured]
    count = min(each.comparison.replicates for each in measured)
    floor = _half([w * value for w, value in zip(weights, floors, strict=True)], [n + 1 for n in freedom], level)
    estimate = MeanInterval(mean, mean - below, mean + above, level, math.nan, count)
    default = max(MIN_MARGIN, FLOORS_PER_MARGIN * math.expm1(floor))
    used = default if margin is None else margin
    if count == 1:
        return Numbers(estimate, floor, max(used, SINGLE_MARGIN), False)
    return Numbers(estimate, floor, used, margin is not None or default <= WIDEST_SAME)


def _half(halves: Sequence[float], freedom: Sequence[int], level: float) -> float:
    """Half-width of a sum of independent terms, from theirs and their degrees of freedom (Welch, Satterthwaite)."""
    at = (1.0 + level) / 2.0
    variances = [(half / stats.t_quantile(at, df)) ** 2 for half, df in zip(halves, freedom, strict=True)]
    total = sum(variances)
    if total == 0.0:
        return 0.0
    pooled = total**2 / sum(variance**2 / df for variance, df in zip(variances, freedom, strict=True))
    return stats.t_quantile(at, pooled) * math.sqrt(total)
