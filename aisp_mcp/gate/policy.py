"""The gate's policy: from the comparisons of two commits to an outcome for the change. Pure functions.

A look is one comparison in fresh processes. A change fails if looks prove a slowdown, or if the head is slower in some
of its processes, look after look. A benchmark that could not be judged is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

from aisp_mcp.gate.records import Outcome
from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Verdict

OUTCOMES: dict[Verdict, Outcome] = {
    Verdict.FASTER: "improved",
    Verdict.SAME: "unchanged",
    Verdict.SLOWER: "regressed",
    Verdict.INCONCLUSIVE: "could_not_judge",
    Verdict.INCORRECT: "wrong",
    Verdict.INVALID: "wrong",
}
CONFIRMED = 3  # consecutive bad looks that fail a change
LOOKS, NEEDED = 5, 4  # maximum number of looks, and how many of them must be bad
SCATTER = 4.0  # times the base's own scatter: with five processes each, one in a hundred equal programs exceeds this
POOLED_LEVEL = 0.99  # of the interval over all looks but the first, which is subject to selection bias
BROKEN = (Verdict.INCORRECT, Verdict.INVALID)
ALWAYS_FAIL: tuple[Outcome, ...] = ("regressed", "wrong", "failed")
Kind = Literal["slower", "unsteady", "vague", "clean"]


@dataclass(frozen=True)
class Look:
    """Numbers of one comparison, in log units: the ratio with its interval, and the run's noise floor.

    usable: there is a ratio that is not just a bound, and both clocks show a slowdown if the ratio does.
    """

    verdict: Verdict
    mean: float
    low: float
    high: float
    floor: float
    processes: int
    level: float = 0.95
    usable: bool = True

    def kind(self, margin: float) -> Kind:
        """slower: a slowdown of any size is significant. unsteady: the head varies far more than the base, towards
        slower. clean: a slowdown beyond the margin is ruled out. vague: none of these.
        """
        if not self.usable:
            return "vague"
        if self.high < 0.0 and self.mean + self.floor < 0.0:
            return "slower"
        half = (self.high - self.low) / 2
        if self.mean < -math.log1p(margin) and self.low < 0.0 and half > SCATTER * self.floor:
            return "unsteady"
        return "clean" if self.low > -math.log1p(margin) else "vague"

    def is_bad(self, margin: float) -> bool:
        """Return True for a slowdown, and for a head that is slower in some of its processes."""
        return self.kind(margin) in ("slower", "unsteady")


def look(comparison: Comparison) -> Look:
    """The numbers of a comparison that the policy uses."""
    ratio, clocks = comparison.ratio, comparison.clocks
    numbers = log_look(comparison.verdict, ratio, comparison.interval, comparison.noise_floor, comparison.replicates)
    if clocks is None or ratio is None:
        return numbers
    doubtful = max(clocks.ratio_parent, clocks.ratio_worker or 0.0) >= 1.0 > ratio
    bound = clocks.used == "lower_bound"  # a bound of a gain proves no loss
    return replace(numbers, usable=numbers.usable and not doubtful and not bound)


def log_look(
    verdict: Verdict, ratio: float | None, interval: Interval | None, noise_floor: float | None, processes: int
) -> Look:
    """The same numbers for any other measurement."""
    if ratio is None or interval is None:
        return Look(verdict, 0.0, 0.0, 0.0, 0.0, processes, usable=False)
    mean, low, high = (math.log(max(value, 1e-12)) for value in (ratio, interval.low, interval.high))
    return Look(verdict, mean, low, high, math.log1p(noise_floor or 0.0), processes, interval.level)


def needs_look(looks: Sequence[Look], margin: float) -> bool:
    """Return True if one more look could change the outcome."""
    if len(looks) >= LOOKS or any(look.verdict in BROKEN for look in looks):
        return False
    if looks[0].verdict not in (Verdict.SLOWER, Verdict.INCONCLUSIVE) or not looks[0].is_bad(margin):
        return False
    kinds, bad = [look.kind(margin) for look in looks], sum(look.is_bad(margin) for look in looks)
    if bad == len(looks) >= CONFIRMED:
        return False
    return "clean" not in kinds or bad + LOOKS - len(looks) >= NEEDED


def judge_looks(looks: Sequence[Look], margin: float) -> tuple[Outcome, str]:
    """The outcome of an apparent slowdown, with the reason. margin: a fraction that the mean of the looks
    must exceed.
    """
    if not looks[0].usable:
        return "could_not_judge", "one of the two clocks shows no slowdown"
    kinds, number = [look.kind(margin) for look in looks], len(looks)
    bad = sum(look.is_bad(margin) for look in looks)
    mean = fmean(look.mean for look in looks)
    words = f"{math.exp(mean):.3f}x over {number} looks"
    if number < CONFIRMED:
        return "could_not_judge", f"look {number + 1} gave no comparison"
    if mean >= -math.log1p(margin):
        return "could_not_judge", f"{words} is within the margin"
    if bad == number or bad >= NEEDED:
        if 2 * kinds.count("unsteady") <= number:
            return "regressed", f"{words}, {_count(bad, number)} a slowdown"
        return "regressed", f"{words}: the head is slower in some of its processes, which scatter {_scatter(looks)}"
    if "clean" not in kinds and (high := pooled_high(looks[1:])) is not None and high < 0.0:
        return "regressed", f"{words}, no other look contradicts it, and all but the first together prove it"
    return "could_not_judge", f"{words}, {_count(bad, number)} a slowdown"


def pooled_high(looks: Sequence[Look]) -> float | None:
    """Upper end of the interval over the processes of several looks, log units; None if there are too few.

    The error is the larger of the scatter within looks and that between them: an effect that shifts all processes of a
    look together does not become certain with their number.
    """
    if len(looks) < LOOKS - 1 or any(not look.usable or look.processes < 2 for look in looks):
        return None
    errors = [(look.high - look.low) / 2 / stats.t_quantile((1 + look.level) / 2, look.processes - 1) for look in looks]
    within = math.sqrt(math.fsum(error * error for error in errors)) / len(looks)
    between = stdev(look.mean for look in looks) / math.sqrt(len(looks))
    freedom = sum(look.processes - 1 for look in looks) if within >= between else len(looks) - 1
    return fmean(look.mean for look in looks) + stats.t_quantile((1 + POOLED_LEVEL) / 2, freedom) * max(within, between)


def resolution(ratio: float | None, interval: Interval | None, noise_floor: float | None) -> float | None:
    """The slowdown that every look detects in nine of ten gates, given this look's noise, as a fraction."""
    if ratio is None or interval is None:
        return None
    half = (interval.high - interval.low) / 2 / ratio
    return half + max(half, noise_floor or 0.0)


def resolution_words(fraction: float) -> str:
    """The resolution in words, for readers of a comment."""
    return f"would have detected a slowdown of {100 * fraction:.2g} %"


def _count(bad: int, number: int) -> str:
    return "which all show" if bad == number else f"of which {bad} show"


def _scatter(looks: Sequence[Look]) -> str:
    half = fmean((look.high - look.low) / 2 for look in looks)
    return f"{half / max(fmean(look.floor for look in looks), 1e-9):.2g} times as much as the base's"
