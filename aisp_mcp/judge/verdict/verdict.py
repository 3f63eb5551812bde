"""The verdict of a comparison, one of six words, from its replicates. Pure; the only place where one is chosen.

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

Faster and slower thus need evidence for a difference and a size that matters; same needs evidence for the lack of
one. The margin moves nothing but the words: ratio and interval are always given. An estimate that does not exceed
the noise floor is refused, also with a margin set by the caller. Where noise alone has widened the margin beyond
5 %, `same` would say nothing and is refused too.

A single replicate has no second process to compare with. Its A/A difference is then the only sample of the scatter
between processes: the interval is t with one degree of freedom (11 times that difference), the margin at least
10 %, `same` impossible, and the sentence says so. Fatal flags come before all numbers; a missing replicate is never
dropped, it makes the verdict inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.measurement import Clocks, Interval, Verification
from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.judge.statistics import Estimate, Floor, UnusableError

MIN_MARGIN = 0.01
SINGLE_MARGIN = 0.10
FLOORS_PER_MARGIN = 2.0
WIDEST_SAME = 0.05
DELTA = 0.05
# On a GPU, where up to a hundredth of a round can be hidden at its ends: both together must stay below 5 %.
DEVICE_DELTA = 0.04
MAX_TOLERANCE = 0.25  # a parent that resolves less than this vouches for nothing
BIAS_ALPHA = 0.001


@dataclass(frozen=True)
class Judgement:
    """A verdict and the numbers behind it, as ratios and fractions (0.01 is 1 %). None: could not be computed."""

    verdict: Verdict
    sentence: str
    margin: float | None = None
    p_value: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = None
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class Numbers:
    """Numbers from which the word is chosen: log units but for margin, a fraction."""

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
) -> Judgement:
    """Judge one candidate.

    log_ratios: ln(baseline) - ln(candidate) per replicate. noise: ln(B) - ln(B') per replicate. margin: a fraction; 0
    asks for a difference of any size above the noise floor and makes `same` impossible. level: of the interval; a
    planned look gives its own. counted: the metric is counted, not timed (bytes), so equal replicates are legitimate.
    """
    verdict = _ended(flags, verification)
    if verdict is not None:
        return Judgement(verdict, _ended_sentence(verdict, flags, verification))
    try:
        if len(log_ratios) != len(noise):
            raise UnusableError("missing", f"{len(noise)} A/A differences for {len(log_ratios)} replicates.")
        numbers = _numbers(log_ratios, noise, margin, level, counted)
    except UnusableError as error:
        flag = Flag(code=f"unusable_{error.code}", severity="warn", message=str(error))
        return Judgement(Verdict.INCONCLUSIVE, f"inconclusive: {_lower(str(error))}", flags=(flag,))
    verdict, reason = word(numbers)
    estimate = numbers.estimate
    return Judgement(
        verdict,
        _sentence(verdict, reason, numbers, verification),
        numbers.margin,
        estimate.p_value,
        math.exp(estimate.mean),
        Interval(low=math.exp(estimate.low), high=math.exp(estimate.high), level=level),
        math.expm1(numbers.floor),
        _bias_flags(noise, counted),
    )


# --- what comes before numbers


def _ended(flags: Sequence[Flag], verification: Verification | None) -> Verdict | None:
    """invalid for a fatal flag, incorrect for a wrong output; a run that broke the rules proves nothing, so first."""
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
    return f"{verdict.value}: {_lower(messages[0])}"


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
    """The verdict, and for inconclusive why."""
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
    """One line: word, ratio, interval, what limits it, what was verified."""
    e = numbers.estimate
    text = f"{verdict.value}: {_digits(e.mean)}x ({100 * e.level:.4g} % interval {_digits(e.low)}-{_digits(e.high)})"
    if reason:
        text += f", {reason}"
    if numbers.margin > 0.0 and verdict not in (Verdict.FASTER, Verdict.SLOWER):
        text += f", margin {_percent(numbers.margin)}"
    text += f", noise floor {_percent(math.expm1(numbers.floor))}"
    if verification is not None:
        text += f", {verification.checked} of {verification.calls} timed calls verified"
    if numbers.single:
        text += "; one process pair only, more replicates are needed to confirm it"
    return text


def _digits(log_ratio: float) -> str:
    """A ratio with the digits that a reader can use: three decimals near 1, two or three digits further out."""
    ratio = math.exp(min(log_ratio, 700.0))
    if 0.8 < ratio < 1.25:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}" if 0.1 < ratio < 100 else f"{ratio:.3g}"


def _percent(fraction: float) -> str:
    if fraction > 10:
        return "over 1000 %"
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def _lower(message: str) -> str:
    """A message as the second half of a sentence."""
    message = message.strip().rstrip(".")
    word = message.split(" ")[0]
    return message[:1].lower() + message[1:] if word[1:] == word[1:].lower() else message  # but not NaN


def _bias_flags(noise: Sequence[float], counted: bool) -> tuple[Flag, ...]:
    """Two processes of one program that differ systematically: the machine or the order favours one side."""
    floor = _floor(list(noise), counted)
    if floor.p_value >= BIAS_ALPHA:
        return ()
    message = f"The two baseline processes differ by {_percent(math.expm1(abs(floor.mean)))} in all replicates."
    return (Flag(code="noise_biased", severity="warn", message=message, evidence={"p_value": floor.p_value}),)


# --- clocks


def choose_clock(
    parent: Sequence[float],
    worker: Sequence[float],
    delta: float = DELTA,
    parent_resolution: float = 0.0,
    worker_mean: Sequence[float] = (),
) -> tuple[Clocks, list[Flag]]:
    """Choose the clock that counts, with flags that a reader needs.

    parent, worker, worker_mean: log-ratios per replicate on the parent's clock over whole rounds, and on the workers'
    own as the median and as the mean of a round's calls. delta: tolerated relative difference of two ratios.
    parent_resolution: relative difference that the parent's clock can just tell apart.

    The workers' clock counts only within the larger of both, and never beyond MAX_TOLERANCE: the median, which single
    disturbed calls do not move, or else the mean, which like the parent's clock also counts the slow first calls of a
    round. If neither agrees, the one that favours the candidate less counts, with the flag clock_disagreement. So a
    candidate that bends its clock, or the costs that are subtracted from the parent's, gains at most that tolerance;
    where the parent resolves less than delta, the flag clock_resolution_low says so, and lower_bound.py leaves that
    much of a gain out. A worker without usable numbers disagrees. Raises UnusableError if the parent has none.
    """
    of_parent = fmean(stats.usable(parent))
    tolerance = min(max(delta, parent_resolution), MAX_TOLERANCE)
    flags: list[Flag] = []
    name = "worker"
    of_worker, difference = _worker_ratio(worker, len(parent), of_parent)
    agree = difference is not None and difference <= tolerance
    if worker_mean and not agree:
        of_mean, of_mean_difference = _worker_ratio(worker_mean, len(parent), of_parent)
        if of_mean_difference is not None and of_mean_difference <= tolerance:
            name, of_worker, difference, agree = "worker_mean", of_mean, of_mean_difference, True
    evidence = {"ratio_parent": math.exp(of_parent), "tolerance": tolerance}
    if not agree:
        said = "nothing usable" if of_worker is None else f"{_digits(of_worker)}x"
        message = f"The workers' own clocks say {said}, the parent's {_digits(of_parent)}x: the smaller counts."
        flags.append(Flag(code="clock_disagreement", severity="warn", message=message, evidence=evidence))
    elif parent_resolution > delta:
        message = (
            f"The parent's clock resolves {_percent(parent_resolution)} here: "
            "the reported speedup is reduced by this resolution."
        )
        flags.append(Flag(code="clock_resolution_low", severity="warn", message=message, evidence=evidence))
    clocks = Clocks(
        used=name if agree or (of_worker is not None and of_worker < of_parent) else "parent",
        ratio_parent=math.exp(of_parent),
        ratio_worker=None if of_worker is None else math.exp(of_worker),
        disagreement=difference,
        delta=tolerance,
    )
    return clocks, flags


def _worker_ratio(worker: Sequence[float], replicates: int, of_parent: float) -> tuple[float | None, float | None]:
    """(mean log-ratio on the workers' clock, relative difference to the parent's); None where a claim is absurd."""
    try:
        of_worker = fmean(stats.usable(worker, least=replicates))
        math.exp(of_worker)
        return of_worker, math.expm1(abs(of_worker - of_parent))
    except (UnusableError, OverflowError):
        return None, None
