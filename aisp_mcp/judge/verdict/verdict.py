"""Third step of a verdict: margin and word. Only this module chooses one of the six words. Pure functions.

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
from aisp_mcp.judge.statistics import Floor, MeanInterval, UnusableError
from aisp_mcp.judge.verdict import wording

# --- calibrated constants (docs/decisions/0007-judge-by-a-t-interval-over-processes.md,
# results/calibration-simulated.json)

# Margin, as a fraction of the baseline's time: the least, the least with a single replicate, and in noise floors. In
# 10,000 simulated runs of identical programs, 0.0 to 0.1 % are called different (1.8 % if the candidate's processes
# scatter three times as much); of 40,000 single replicates, none.
MIN_MARGIN, SINGLE_MARGIN, FLOORS_PER_MARGIN = 0.01, 0.10, 2.0
# Widest margin of `same` that noise alone may set. Chosen: programs that differ by more should not be called the same.
WIDEST_SAME = 0.05
# P-value of a difference between the baselines that is flagged. Chosen: one in a thousand runs of a fair machine has a
# flag, which changes no verdict.
BIAS_ALPHA = 0.001


@dataclass(frozen=True)
class Judgement:
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

    estimate: MeanInterval
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
    apart: float = 0.0,
    counted: bool = False,
) -> Judgement:
    """Judge one candidate.

    log_ratios: ln(baseline) - ln(candidate) per replicate. noise: the A/A log-ratio per replicate, ln(baseline) -
    ln(baseline repeat). margin: a fraction; 0 accepts a difference of any size above the noise floor and makes `same`
    impossible. level: of the interval; a planned look has its own. apart: what the log-ratio gains or loses where the
    programs are used in another way than in rounds; the interval holds both. counted: the metric is counted, not timed
    (bytes), so equal replicates are legitimate.
    """
    verdict = _ended(flags, verification)
    if verdict is not None:
        return Judgement(verdict, wording.short_sentence(verdict, _deciding_message(verdict, flags, verification)))
    try:
        if len(log_ratios) != len(noise):
            message = wording.noise_is_missing(differences=len(noise), replicates=len(log_ratios))
            raise UnusableError("missing", message)
        numbers = _numbers(log_ratios, noise, margin, level, apart, counted)
    except UnusableError as error:
        return unusable(error)
    verdict, reason = word(numbers)
    estimate = numbers.estimate
    return Judgement(
        verdict,
        wording.sentence(
            verdict,
            reason=reason,
            log_ratio=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            level=estimate.level,
            margin=numbers.margin,
            noise_floor=math.expm1(numbers.floor),
            verification=verification,
            single=numbers.single,
        ),
        numbers.margin,
        estimate.p_value,
        math.exp(estimate.mean),
        Interval(low=math.exp(estimate.low), high=math.exp(estimate.high), level=level),
        math.expm1(numbers.floor),
        _bias_flags(noise, counted),
    )


def unusable(error: UnusableError) -> Judgement:
    """The judgement if no ratio can be computed from the times."""
    flag = Flag(code=f"unusable_{error.code}", severity="warn", message=str(error))
    return Judgement(Verdict.INCONCLUSIVE, wording.short_sentence(Verdict.INCONCLUSIVE, str(error)), flags=(flag,))


def without_loss(judgement: Judgement) -> Judgement:
    """The judgement of a bound. It can prove neither a loss nor sameness, since a bound counts uncertainty against the
    candidate.
    """
    if judgement.verdict not in (Verdict.SLOWER, Verdict.SAME):
        return judgement
    sentence = wording.no_gain_is_proven(judgement.ratio)
    return replace(judgement, verdict=Verdict.INCONCLUSIVE, sentence=sentence)


def as_lower_bound(judgement: Judgement, clocks: Clocks) -> Judgement:
    """The judgement, with a sentence saying that the parent's clock proves only this ratio."""
    claimed = clocks.ratio_worker
    if claimed is None or not clocks.bound(judgement.ratio):
        return judgement
    now = judgement.sentence, judgement.verdict, judgement.ratio
    return replace(judgement, sentence=wording.by_both_clocks(*now, ratio_worker=claimed))


def with_device_alone(judgement: Judgement, clocks: Clocks, flags: Sequence[Flag]) -> Judgement:
    """The judgement, with a sentence that also gives the ratio on the device alone, for ratios that include host
    time.
    """
    alone = next((flag.evidence["ratio_alone"] for flag in flags if flag.code == "host_bound"), None)
    if alone is None or clocks.used != "with_host":
        return judgement
    now = judgement.sentence, judgement.verdict, judgement.ratio
    return replace(judgement, sentence=wording.with_and_without_host(*now, ratio_alone=alone))


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


def _deciding_message(verdict: Verdict, flags: Sequence[Flag], verification: Verification | None) -> str:
    messages = [f.message for f in flags if f.severity == "fatal"]
    if verdict is Verdict.INCORRECT and verification is not None and verification.failure is not None:
        messages.insert(0, verification.failure)
    return messages[0]


# --- numbers


def _numbers(
    log_ratios: Sequence[float],
    noise: Sequence[float],
    margin: float | None,
    level: float,
    apart: float,
    counted: bool,
) -> Numbers:
    if margin is not None and not 0.0 <= margin < math.inf:
        raise ValueError(f"A margin must be a fraction from 0 on, got {margin}.")
    ratios, differences = stats.usable(log_ratios), stats.usable(noise)
    floor = _floor(differences, counted).half_width
    if len(ratios) > 1:
        estimate = _estimate(ratios, level, counted)
    else:
        estimate = _single(ratios[0], _floor(differences, counted, level).half_width, level)
    estimate = replace(estimate, low=estimate.low + min(apart, 0.0), high=estimate.high + max(apart, 0.0))
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


def _estimate(ratios: list[float], level: float, counted: bool) -> MeanInterval:
    if counted and max(ratios) - min(ratios) <= 1e-12:
        return _exact(ratios[0], level, len(ratios))
    return stats.t_interval(ratios, level)


def _exact(ratio: float, level: float, n: int) -> MeanInterval:
    return MeanInterval(ratio, ratio, ratio, level, 1.0 if ratio == 0.0 else 0.0, n)


def _single(ratio: float, half: float, level: float) -> MeanInterval:
    """One replicate: its A/A difference is the scale, with one degree of freedom."""
    if half == 0.0:
        return _exact(ratio, level, 1)
    t = ratio * stats.t_quantile((1.0 + level) / 2.0, 1) / half
    return MeanInterval(ratio, ratio - half, ratio + half, level, 2.0 * stats.t_tail(t, 1), 1)


# --- the word


def word(numbers: Numbers) -> tuple[Verdict, str | None]:
    """The verdict, and the reason if it is inconclusive."""
    interval, edge = numbers.estimate, math.log1p(numbers.margin)
    inside = -edge < interval.low and interval.high < edge
    if inside and numbers.can_be_same:
        return Verdict.SAME, None
    if interval.low <= 0.0 <= interval.high:
        noisy = wording.ONE_PAIR_IS_NEVER_SAME if numbers.single else wording.TOO_NOISY_FOR_SAME
        return Verdict.INCONCLUSIVE, noisy if inside else wording.NO_DIFFERENCE_SHOWN
    if abs(interval.mean) <= numbers.floor:
        return Verdict.INCONCLUSIVE, wording.BELOW_NOISE_FLOOR
    if abs(interval.mean) <= edge:
        return Verdict.INCONCLUSIVE, wording.WITHIN_MARGIN
    return (Verdict.FASTER if interval.mean > 0.0 else Verdict.SLOWER), None


def _bias_flags(noise: Sequence[float], counted: bool) -> tuple[Flag, ...]:
    """A flag if two processes of one program differ systematically: the machine or the order favours one of them."""
    floor = _floor(list(noise), counted)
    if floor.p_value >= BIAS_ALPHA:
        return ()
    message = wording.baselines_differ(math.expm1(abs(floor.mean)))
    return (Flag(code="noise_biased", severity="warn", message=message, evidence={"p_value": floor.p_value}),)
