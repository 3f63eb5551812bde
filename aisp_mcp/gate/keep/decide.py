"""Decide after each pair of runs whether a candidate is better, at an error rate that holds whenever one stops.

The evidence is an e-value: the likelihood ratio of a t test with a normal prior on the standardised effect, averaged
over a few prior widths. Under normal noise of any size its expectation is at most 1 at every sample size, so it exceeds
1/alpha with probability at most alpha however often one looks, and more runs may be added at any time (Ville 1939; Lai
1976; Pérez-Ortiz and others 2022). docs/decisions/0102-spend-one-error-budget-over-a-loop.md has the simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Literal

# Prior variances of the effect in standard deviations of a pair: from subtle to a program twice as fast.
PRIORS = (1.0, 10.0, 100.0, 10_000.0)
MISSED = 0.05  # chance to discard a candidate that is better by the smallest gain worth keeping
FIRST_STEPS = 100  # steps that share the first half of the error budget
# Pairs without which nothing is kept: noise with two states can repeat one difference several times by chance. Fewer
# are enough once identical runs have shown how large differences by chance are.
FEWEST, FEWEST_KNOWN, KNOWN = 8, 5, 6
REMEMBERED = 40  # latest identical pairs that count
# Repeated runs without one difference after which a program counts as one without noise.
EXACT, EXACT_PAIRS = 6, 4
FARTHEST = 10_000
# Standard deviations of the incumbent's runs within which one draw may be the best of many: of 10,000 in 1 of 3 cases.
LUCK = 4.0
Outcome = Literal["keep", "discard", "undecided"]


def share(step: int) -> float:
    """The part of a loop's error budget that its step gets, from step 1 on; over all steps the parts sum to 1.

    The first hundred steps share half of it equally, the next two hundred a quarter, and so on.
    """
    block = int(math.log2(1 + (step - 1) / FIRST_STEPS))
    return float(0.5 / FIRST_STEPS * 0.25**block)


def evidence(differences: Sequence[float], known: Sequence[float] = ()) -> float:
    """The e-value for a mean above zero. known: differences of identical programs, which inform of the noise only."""
    count, mean = len(differences), fmean(differences)
    if mean <= 0:
        return 0.0
    squares = math.fsum(value * value for value in (*differences, *known))
    explained = count * mean * mean / squares
    degrees = count + len(known)
    logs = []
    for prior in PRIORS:
        shrink = count * prior / (1 + count * prior)
        logs.append(-0.5 * math.log1p(count * prior) - degrees / 2 * math.log1p(-shrink * explained))
    two_sided = fmean(math.exp(min(value, 700.0)) for value in logs)
    return max(2 * two_sided - 1, 0.0)  # the half for means below zero is at most 1


def decide(differences: Sequence[float], known: Sequence[float], alpha: float, gain: float) -> Outcome:
    """Judge the differences so far, positive where the candidate is better.

    known: differences of identical programs, measured before this comparison began. alpha: probability to keep a
    candidate that is not better. gain: smallest difference worth keeping.
    """
    if _is_better(differences, known, alpha):
        return "keep"
    return "discard" if _is_not_worth_keeping(differences, known, gain) else "undecided"


def decide_exactly(differences: Sequence[float], repeats: int, gain: float) -> Outcome:
    """The same for a program that has printed one number in all of so many repeated runs.

    Its noise is unknown rather than zero, so a gain below one worth keeping is none.
    """
    if len(differences) < 2 or repeats < EXACT:
        return "undecided"
    return "keep" if differences[0] >= gain else "discard"


def may_be_luck(pairs: Sequence[tuple[float, float]], differences: Sequence[float]) -> bool:
    """Return True if the candidate repeats its numbers, the incumbent prints another one in each run, and the best of
    many seeds could be as much better.
    """
    incumbent, candidate = (set(column) for column in zip(*pairs, strict=True))
    if len(pairs) < 2 or 2 * len(candidate) > len(pairs) or len(incumbent) < len(pairs):
        return False
    return fmean(differences) < LUCK * stdev(differences)


def _is_better(differences: Sequence[float], known: Sequence[float], alpha: float) -> bool:
    """Return True if the gain is proven against the noise of this step and against that of the whole loop."""
    if len(differences) < (FEWEST_KNOWN if len(known) >= KNOWN else FEWEST):
        return False
    return min(evidence(differences), evidence(differences, known)) >= 1 / alpha


def _is_not_worth_keeping(differences: Sequence[float], known: Sequence[float], gain: float) -> bool:
    if len(differences) < 2:
        return False
    short = [gain - difference for difference in differences]
    return min(evidence(short), evidence(short, known)) >= 1 / MISSED


def interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """An interval that holds the mean at every look at once with this probability."""
    if len(differences) < 2:
        return -math.inf, math.inf
    mean = fmean(differences)

    def half(sign: int) -> float:
        def excludes(width: float) -> bool:
            return evidence([sign * (value - mean) + width for value in differences]) >= 2 / (1 - level)

        return _first(excludes, max(map(abs, differences), default=0.0) or 1.0)

    return mean - half(1), mean + half(-1)


def _first(holds: Callable[[float], bool], scale: float) -> float:
    """The smallest width that holds, to one per cent of it; infinite if none within reach does."""
    high = 1e-9 * scale
    while not holds(high):
        high *= 2
        if high > 1e6 * scale:
            return math.inf
    low = high / 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def more(differences: Sequence[float], known: Sequence[float], alpha: float, gain: float) -> int | None:
    """Further pairs that would decide if they repeated those so far; None if they are more than can be run."""

    def decided(times: int) -> bool:
        repeated = [*differences] * times
        return _is_better(repeated, known, alpha) or _is_not_worth_keeping(repeated, known, gain)

    count, times = len(differences), 2
    while not decided(times):
        times *= 2
        if times * count > FARTHEST:
            return None
    low, high = times // 2, times
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return count * (high - 1)
