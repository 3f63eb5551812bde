"""Third step of a verdict: margin, word and sentence. Only this module chooses one of the six words. Pure functions.

The ratio is baseline time over candidate time: above 1 the candidate is faster. With margin m (default the larger of
1 % and twice the A/A half-width) and the 95 % interval over replicates, on the logarithmic scale:

        -m        0        +m
    ─────┼────────┼────────┼─────────
         │        │        │  ├──●──┤   faster: whole interval above 0 and the estimate beyond +m
         │        │     ├──┼──●──┤      faster
         │        │ ├───●──┼─┤          inconclusive: real, but the estimate is within the margin
         │   ├────┼────────┼──●──┤      inconclusive: no difference is inside the interval
         │   ├──●─┼──┤     │            same: whole interval within the margin
    ├──●─┼──┤     │        │            slower: mirrored

Faster and slower thus need evidence for a difference and a size that matters; same needs evidence for the lack of one.
The margin affects only the word: ratio and interval are always given. An estimate that does not exceed the noise floor
is refused, even with a margin set by the caller. If noise alone has widened the margin beyond 5 %, `same` would mean
nothing and is refused too.

A single replicate has no second process to compare with. Its A/A difference is then the only sample of the scatter
between processes: the interval is t with one degree of freedom (11 times that difference), the margin at least 10 %,
`same` impossible, and the sentence says so. Fatal flags come before all numbers; a missing replicate is never dropped
but makes the verdict inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.measurement import Clocks, Interval, Verification
from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.judge.statistics import Estimate, Floor, UnusableError
from aisp_mcp.judge.verdict.wording import as_clause, format_percent, format_ratio

MIN_MARGIN = 0.01
SINGLE_MARGIN = 0.10
FLOORS_PER_MARGIN = 2.0
WIDEST_SAME = 0.05
BIAS_ALPHA = 0.001


@dataclass(frozen=True)
class Outcome:
    """A verdict and its numbers, as ratios and fractions (0.01 is 1 %). None: could not be computed."""

    verdict: Verdict
    sentence: str
    margin: float | None = None
    p_value: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = None
    flags: tuple[Flag, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The fields of a Comparison that follow from the verdict, except the flags."""
        names = ("verdict", "sentence", "ratio", "interval", "margin", "noise_floor", "p_value")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Numbers:
    """Numbers from which the word is chosen: in log units, except margin, a fraction."""

    estimate: Estimate
    floor: float
    margin: float
    can_be_same: bool

    @property
    def single(self) -> bool:
        return self.estimate.n == 1


def judge(
    log_ratios: Sequence[float],
    noise: Sequence[float],
    *,
    margin: float | None = None,
    level: float = 0.95,
    flags: Sequence[Flag] = (),
    verification: Verification | None = None,
    counted: bool = False,
) -> Outcome:
    """Judge one candidate.

    log_ratios: ln(baseline) - ln(candidate) per replicate. noise: the A/A log-ratio per replicate, ln(baseline) -
    ln(baseline repeat). margin: a fraction; 0 accepts a difference of any size above the noise floor and makes `same`
    impossible. level: of the interval; a planned look has its own. counted: the metric is counted, not timed (bytes),
    so equal replicates are legitimate.
    """
    verdict = _ended(flags, verification)
    if verdict is not None:
        return Outcome(verdict, _ended_sentence(verdict, flags, verification))
    try:
        if len(log_ratios) != len(noise):
            raise UnusableError("missing", f"{len(noise)} A/A differences for {len(log_ratios)} replicates.")
        numbers = _numbers(log_ratios, noise, margin, level, counted)
    except UnusableError as error:
        return unusable(error)
    verdict, reason = word(numbers)
    estimate = numbers.estimate
    return Outcome(
        verdict,
        _sentence(verdict, reason, numbers, verification),
        numbers.margin,
        estimate.p_value,
        math.exp(estimate.mean),
        Interval(low=math.exp(estimate.low), high=math.exp(estimate.high), level=level),
        math.expm1(numbers.floor),
        _bias_flags(noise, counted),
    )


def unusable(error: UnusableError) -> Outcome:
    """The outcome if no ratio can be computed from the times."""
    flag = Flag(code=f"unusable_{error.code}", severity="warn", message=str(error))
    return Outcome(Verdict.INCONCLUSIVE, f"inconclusive: {as_clause(str(error))}", flags=(flag,))


def without_loss(outcome: Outcome) -> Outcome:
    """The outcome of a bound. It can prove neither a loss nor sameness, since a bound counts uncertainty against the
    candidate.
    """
    if outcome.verdict not in (Verdict.SLOWER, Verdict.SAME):
        return outcome
    sentence = f"inconclusive: no gain is proven, only a ratio of at least {outcome.ratio:.3g}x"
    return replace(outcome, verdict=Verdict.INCONCLUSIVE, sentence=sentence)


def as_lower_bound(outcome: Outcome, clocks: Clocks) -> Outcome:
    """The outcome, with a sentence saying that the parent's clock proves only this ratio."""
    claimed = clocks.ratio_worker
    if claimed is None or not clocks.bound(outcome.ratio):
        return outcome
    return _qualified(
        outcome, "at least ", f" by the parent's clock, {format_ratio(math.log(claimed))}x by the worker's own"
    )


def with_device_alone(outcome: Outcome, clocks: Clocks, flags: Sequence[Flag]) -> Outcome:
    """The outcome, with a sentence that also gives the ratio on the device alone, for ratios that include host time."""
    alone = next((flag.evidence["ratio_alone"] for flag in flags if flag.code == "host_bound"), None)
    if alone is None or clocks.used != "with_host":
        return outcome
    return _qualified(outcome, "", f" with the host's time, {format_ratio(math.log(alone))}x on the device alone")


def _qualified(outcome: Outcome, before: str, after: str) -> Outcome:
    """The outcome, with words around the ratio at the start of its sentence, if there is one."""
    ratio = f"{format_ratio(math.log(outcome.ratio))}x" if outcome.ratio else ""
    begin = f"{outcome.verdict.value}: {ratio}"
    if not ratio or not outcome.sentence.startswith(begin):
        return outcome
    rest = outcome.sentence.removeprefix(begin)
    return replace(outcome, sentence=f"{outcome.verdict.value}: {before}{ratio}{after}{rest}")


# --- before any numbers


def _ended(flags: Sequence[Flag], verification: Verification | None) -> Verdict | None:
    """invalid for a fatal flag, incorrect for a wrong output. A run that broke the rules proves nothing, so that comes
    first.
    """
    fatal = {flag.code for flag in flags if flag.severity == "fatal"}
    wrong = {code for code in fatal if code == "incorrect" or code.startswith("incorrect_")}
    if fatal - wrong:
        return Verdict.INVALID
    failed = verification is not None and verification.failure is not None
    return Verdict.INCORRECT if wrong or failed else None


def _ended_sentence(verdict: Verdict, flags: Sequence[Flag], verification: Verification | None) -> str:
    messages = [f.message for f in flags if f.severity == "fatal"]
    if verdict is Verdict.INCORRECT and verification is not None and verification.failure is not None:
        messages.insert(0, verification.failure)
    return f"{verdict.value}: {as_clause(messages[0])}"


# --- numbers


def _numbers(
    log_ratios: Sequence[float], noise: Sequence[float], margin: float | None, level: float, counted: bool
) -> Numbers:
    if margin is not None and not 0.0 <= margin < math.inf:
        raise ValueError(f"A margin must be a fraction from 0 on, got {margin}.")
    ratios, differences = stats.usable(log_ratios), stats.usable(noise)
    floor = _floor(differences, counted).half_width
    if len(ratios) > 1:
        estimate = _estimate(ratios, level, counted)
    else:
        estimate = _single(ratios[0], _floor(differences, counted, level).half_width, level)
    default = max(MIN_MARGIN, FLOORS_PER_MARGIN * math.expm1(floor))
    if len(ratios) == 1:
        return Numbers(estimate, floor, max(default if margin is None else margin, SINGLE_MARGIN), False)
    if margin is None:
        return Numbers(estimate, floor, default, default <= WIDEST_SAME)
    return Numbers(estimate, floor, margin, True)


def _floor(differences: list[float], counted: bool, level: float = 0.95) -> Floor:
    """The noise floor is one number for a run: a look's stricter level changes the interval, not the floor."""
    if counted and not any(differences):
        return Floor(0.0, 0.0, 1.0, len(differences))
    return stats.noise_floor(differences, level)


def _estimate(ratios: list[float], level: float, counted: bool) -> Estimate:
    if counted and max(ratios) - min(ratios) <= 1e-12:
        return _exact(ratios[0], level, len(ratios))
    return stats.t_interval(ratios, level)


def _exact(ratio: float, level: float, n: int) -> Estimate:
    return Estimate(ratio, ratio, ratio, level, 1.0 if ratio == 0.0 else 0.0, n)


def _single(ratio: float, half: float, level: float) -> Estimate:
    """One replicate: its A/A difference is the scale, with one degree of freedom."""
    if half == 0.0:
        return _exact(ratio, level, 1)
    t = ratio * stats.t_quantile((1.0 + level) / 2.0, 1) / half
    return Estimate(ratio, ratio - half, ratio + half, level, 2.0 * stats.t_tail(t, 1), 1)


# --- words


def word(numbers: Numbers) -> tuple[Verdict, str | None]:
    """The verdict, and the reason if it is inconclusive."""
    estimate, edge = numbers.estimate, math.log1p(numbers.margin)
    inside = -edge < estimate.low and estimate.high < edge
    if inside and numbers.can_be_same:
        return Verdict.SAME, None
    if estimate.low <= 0.0 <= estimate.high:
        noisy = (
            "one process pair cannot show that it is the same"
            if numbers.single
            else "the noise is too wide to call it the same"
        )
        return Verdict.INCONCLUSIVE, noisy if inside else "a ratio of 1 cannot be ruled out"
    if abs(estimate.mean) <= numbers.floor:
        return Verdict.INCONCLUSIVE, "the difference is below the noise floor"
    if abs(estimate.mean) <= edge:
        return Verdict.INCONCLUSIVE, "there is a difference, but it is within the margin"
    return (Verdict.FASTER if estimate.mean > 0.0 else Verdict.SLOWER), None


def _sentence(verdict: Verdict, reason: str | None, numbers: Numbers, verification: Verification | None) -> str:
    """One line: word, ratio, interval, limiting factor, and what was verified."""
    estimate = numbers.estimate
    ratio, low, high = (format_ratio(log_ratio) for log_ratio in (estimate.mean, estimate.low, estimate.high))
    text = f"{verdict.value}: {ratio}x ({100 * estimate.level:.4g} % interval {low}-{high})"
    if reason:
        text += f", {reason}"
    if numbers.margin > 0.0 and verdict not in (Verdict.FASTER, Verdict.SLOWER):
        text += f", margin {format_percent(numbers.margin)}"
    text += f", noise floor {format_percent(math.expm1(numbers.floor))}"
    if verification is not None:
        text += f", {verification.checked} of {verification.calls} timed calls verified"
    if numbers.single:
        text += "; one process pair only, more replicates are needed to confirm it"
    return text


def _bias_flags(noise: Sequence[float], counted: bool) -> tuple[Flag, ...]:
    """A flag if two processes of one program differ systematically: the machine or the order favours one of them."""
    floor = _floor(list(noise), counted)
    if floor.p_value >= BIAS_ALPHA:
        return ()
    message = f"The two baseline processes differ by {format_percent(math.expm1(abs(floor.mean)))} in all replicates."
    return (Flag(code="noise_biased", severity="warn", message=message, evidence={"p_value": floor.p_value}),)
