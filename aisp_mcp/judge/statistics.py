"""Statistics of a comparison: pure functions with known answers, standard library only.

The replicate is a fresh process, never an iteration: calls inside one process share its memory layout, clock
frequencies and luck, so their scatter says nothing about the next process. Each replicate gives one log-ratio;
everything below works on those few numbers. If a value cannot be computed honestly, functions raise UnusableError
instead of returning a number.

Sources: Lentz' continued fraction for the incomplete beta function (Numerical Recipes, 6.4); quantiles of type 7
(Hyndman and Fan 1996); false discovery rate (Benjamini and Hochberg 1995); alpha spending (Lan and DeMets 1983) with
the recursive integral of Armitage, McPherson and Rowe (1969).
docs/decisions/0007-judge-by-a-t-interval-over-processes.md has the simulations behind the choice of estimator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from statistics import NormalDist, fmean, median, stdev

from aisp_mcp.judge.presets import ROUNDS_PER_PALINDROME
from aisp_mcp.judge.protocol.roles import BASELINES, Role

# Values from which a 99th percentile is given: of fewer, it would lie beyond the largest but one.
P99_CALLS = 100
# Standard deviation of a log-ratio (variance 3/2 of one process) over that of an A/A difference (2); decision 7.
NOISE_TO_RATIO = math.sqrt(0.75)

_NORMAL = NormalDist()


class UnusableError(ValueError):
    """The statistic cannot be computed from these numbers. code: empty, not_finite, too_few, zero_variance."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class MeanInterval:
    """A mean of log-ratios with its confidence interval, in log units; p_value is two-sided against zero."""

    mean: float
    low: float
    high: float
    level: float
    p_value: float
    n: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class ReplicateRatio:
    """Log-ratios of one replicate. log_ratio: ln(baseline) - ln(candidate). noise: ln(baseline) -
    ln(baseline repeat).

    palindromes: number used. dropped: number without a usable time.
    """

    log_ratio: float
    noise: float
    palindromes: int
    dropped: int


@dataclass(frozen=True)
class Floor:
    """The noise floor in log units, the mean A/A difference, and the p-value of that mean against zero."""

    half_width: float
    mean: float
    p_value: float
    n: int


@dataclass(frozen=True)
class PlannedLook:
    """One planned look. spent: alpha used up to here. alpha: two-sided nominal level of this look's own test."""

    replicates: int
    spent: float
    alpha: float

    @property
    def level(self) -> float:
        """Confidence level of the interval to judge by at this look."""
        return 1.0 - self.alpha


def usable(values: Sequence[float], least: int = 1) -> list[float]:
    """The same numbers if all are finite and there are enough. Raises UnusableError; nothing is dropped."""
    if not values:
        raise UnusableError("empty", "No values.")
    bad = sum(not math.isfinite(value) for value in values)
    if bad:
        raise UnusableError("not_finite", f"{bad} of {len(values)} values are missing or not finite.")
    if len(values) < least:
        raise UnusableError("too_few", f"{len(values)} values, at least {least} are needed.")
    return list(values)


# --- distributions


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function, by Lentz' method; converges fast for x < (a+1)/(a+b+2)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1.0 + step * d
            c = 1.0 + step / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1.0) < 1e-15:
            return result
    raise ArithmeticError(f"The incomplete beta function did not converge at a={a}, b={b}, x={x}.")


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b > 0 and 0 <= x <= 1."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(front) * _beta_fraction(b, a, 1.0 - x) / b


def t_tail(t: float, df: float) -> float:
    """P(T > |t|) of Student's distribution: one tail, accurate far out."""
    if df <= 0:
        raise UnusableError("too_few", f"Student's t needs degrees of freedom above zero, got {df}.")
    if math.isinf(t):
        return 0.0
    return 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t))


@lru_cache(maxsize=1024)
def t_quantile(p: float, df: float) -> float:
    """The p-quantile of Student's distribution, 0 < p < 1, to about 1e-12 relative."""
    if not 0.0 < p < 1.0:
        raise ValueError(f"A quantile needs 0 < p < 1, got {p}.")
    if p == 0.5:
        return 0.0
    tail = min(p, 1.0 - p)
    high = 1.0
    while t_tail(high, df) > tail:
        high *= 2.0
    root = _bisect(lambda t: t_tail(t, df) - tail, 0.0, high)
    return root if p > 0.5 else -root


def _bisect(falling: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a falling function between low and high, to the last bits."""
    while high - low > 4e-16 * max(1.0, abs(high)):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


# --- one replicate


def replicate_log_ratio(rounds: Sequence[tuple[Role, float]]) -> ReplicateRatio:
    """Reduce the rounds of one replicate to one candidate log-ratio and one A/A log-ratio.

    rounds: (role, seconds per call) in the order in which they ran. They form palindromes of the three roles: the mean
    position of each role is the middle, so a linear drift cancels. Within a palindrome, this takes the mean of
    logarithms (a mean of times would favour the role with more rounds); over the palindromes of one order the median,
    so that a disturbed one does not count; over the orders the mean, so that the effect of a round's position cancels
    if the orders are balanced. A palindrome with a missing or non-positive time is dropped for all roles, and counted.
    Raises ValueError for any other order, and UnusableError if fewer than half of the palindromes remain or one of the
    orders has none left.
    """
    ratios_by_order: dict[tuple[Role, ...], list[tuple[float, float]]] = {}
    dropped = 0
    for begin in range(0, len(rounds), ROUNDS_PER_PALINDROME):
        palindrome = rounds[begin : begin + ROUNDS_PER_PALINDROME]
        order = tuple(role for role, _ in palindrome)
        is_complete = len(order) == ROUNDS_PER_PALINDROME
        if is_complete and (order != order[::-1] or set(order) != set(Role)):
            raise ValueError(f"The rounds {', '.join(order)} are not a palindrome of the three roles.")
        ratios = ratios_by_order.setdefault(order, []) if is_complete else []
        if not is_complete or not all(math.isfinite(time) and time > 0 for _, time in palindrome):
            dropped += 1
            continue
        logs = {role: fmean(math.log(time) for r, time in palindrome if r is role) for role in order}
        first, repeat = (logs[role] for role in BASELINES)
        ratios.append(((first + repeat) / 2 - logs[Role.CANDIDATE], first - repeat))
    usable_count = sum(map(len, ratios_by_order.values()))
    if not usable_count or dropped > usable_count or not all(ratios_by_order.values()):
        raise UnusableError("too_few", f"{dropped} of {usable_count + dropped} palindromes have no usable time.")
    log_ratio = fmean(median(ratio for ratio, _ in ratios) for ratios in ratios_by_order.values())
    noise = fmean(median(noise for _, noise in ratios) for ratios in ratios_by_order.values())
    if noise == 0.0:  # by chance, where times are multiples of a clock's tick: its usual size takes its place
        squares = [noise * noise for ratios in ratios_by_order.values() for _, noise in ratios]
        noise = math.sqrt(fmean(squares) / usable_count)
    return ReplicateRatio(log_ratio, noise, usable_count, dropped)


# --- over replicates


def t_interval(values: Sequence[float], level: float = 0.95) -> MeanInterval:
    """Mean and two-sided t interval. Raises UnusableError for n < 2, missing values and zero variance."""
    numbers = usable(values, least=2)
    n, mean, spread = len(numbers), fmean(numbers), stdev(numbers)
    # Sums of equal numbers have rounding errors: a spread of that size counts as zero.
    if spread <= 1e-14 * max(abs(x) for x in numbers):
        raise UnusableError("zero_variance", f"All {n} replicates are equal; real clocks never are.")
    error = spread / math.sqrt(n)
    half = t_quantile((1.0 + level) / 2.0, n - 1) * error
    return MeanInterval(mean, mean - half, mean + half, level, 2.0 * t_tail(mean / error, n - 1), n)


def median_error(values: Sequence[float]) -> float:
    """Standard error of the median of a few values; 0 for a single one."""
    return 1.25 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def noise_floor(differences: Sequence[float], level: float = 0.95) -> Floor:
    """The largest difference that this run cannot distinguish from noise: sqrt(3/4) * t(n) * rms / sqrt(n), at least
    |mean|.

    differences: ln(baseline) - ln(baseline repeat) per replicate. Both are the same program, so the true mean is zero.
    Therefore this takes the second moment about zero with n degrees of freedom, not the variance about the mean with n
    - 1: it adds spread and mean in root-sum-square, is exact for normal noise, and exists for n = 1 (11 times that
    value). sqrt(3/4) turns the scatter between two processes into that between two processes' mean and a third, which a
    candidate's log-ratio has: of identical programs, 95 % stay below the floor. |mean| as the lower bound shows a bias
    between the baselines. Raises UnusableError for missing values, and if all differences are zero.
    """
    numbers = usable(differences)
    n, mean = len(numbers), fmean(numbers)
    error = NOISE_TO_RATIO * math.sqrt(math.fsum(x * x for x in numbers) / n) / math.sqrt(n)
    if error == 0.0:
        raise UnusableError("zero_variance", "Both baseline processes took exactly the same time in every replicate.")
    half = max(t_quantile((1.0 + level) / 2.0, n) * error, abs(mean))
    spread = stdev(numbers) if n > 1 else 0.0
    p_value = 2.0 * t_tail(mean * math.sqrt(n) / spread, n - 1) if spread > 0 else 1.0
    return Floor(half, mean, p_value, n)


def hypergeometric_tail(found: int, marked: int, drawn: int, total: int) -> float:
    """Probability that at least `found` of the `marked` ones are among `drawn` of `total`, drawn at random."""
    ways = sum(
        math.comb(marked, number) * math.comb(total - marked, drawn - number)
        for number in range(found, min(marked, drawn) + 1)
    )
    return ways / math.comb(total, drawn)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the given order; rejecting those <= q keeps the false discovery rate at q."""
    usable(p_values)
    if not all(0.0 <= p <= 1.0 for p in p_values):
        raise ValueError("A p-value is outside [0, 1].")
    count = len(p_values)
    adjusted, least = [1.0] * count, 1.0
    for rank, index in sorted(enumerate(sorted(range(count), key=p_values.__getitem__), 1), reverse=True):
        least = min(least, p_values[index] * count / rank)
        adjusted[index] = least
    return adjusted


def quantile(values: Sequence[float], p: float) -> float:
    """Type 7, the linear interpolation between order statistics. Raises UnusableError for p >= 0.99 with n < 100."""
    numbers = sorted(usable(values, least=P99_CALLS if p >= 0.99 else 1))
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"A quantile needs 0 <= p <= 1, got {p}.")
    position = p * (len(numbers) - 1)
    index = min(int(position), len(numbers) - 1)
    above = numbers[min(index + 1, len(numbers) - 1)]
    return numbers[index] + (position - index) * (above - numbers[index])


def percentiles(values: Sequence[float]) -> tuple[float, float, float | None]:
    """(p50, p95, p99) by one fixed policy; p99 is None below 100 values. Raises UnusableError."""
    p99 = quantile(values, 0.99) if len(values) >= P99_CALLS else None
    return quantile(values, 0.5), quantile(values, 0.95), p99


# --- stopping early


def looks(replicates: Sequence[int], alpha: float = 0.05) -> list[PlannedLook]:
    """A plan of at most five looks that together spend alpha (two-sided), as O'Brien and Fleming do.

    replicates: their number at each look, increasing; the last is the full plan. The boundaries are exact for normal
    data with known variance; each is used as the nominal level of a t test (Jennison and Turnbull, 2000, 3.8), which
    the tests check against simulated overall error. Look only at the listed counts.
    """
    plan = list(replicates)
    if not 1 <= len(plan) <= 5 or plan[0] < 2 or any(b <= a for a, b in pairwise(plan)):
        raise ValueError(f"Looks must be one to five increasing counts from 2 on, got {plan}.")
    times = [count / plan[-1] for count in plan]
    spent = [_spent(t, alpha) for t in times]
    bounds = _boundaries(tuple(times), tuple(spent))
    alphas = [2.0 * _NORMAL.cdf(-bound) for bound in bounds]
    return [PlannedLook(*fields) for fields in zip(plan, spent, alphas, strict=True)]


def _spent(time: float, alpha: float) -> float:
    return 4.0 * _NORMAL.cdf(_NORMAL.inv_cdf(alpha / 4.0) / math.sqrt(time))  # alpha/2 spent in each tail


@lru_cache(maxsize=64)
def _boundaries(times: tuple[float, ...], spent: tuple[float, ...], points: int = 121) -> list[float]:
    """z boundaries: at each look P(first crossing there) equals the alpha newly spent (Brownian motion, Simpson)."""
    bounds: list[float] = []
    density, before, used = [(0.0, 1.0)], 0.0, 0.0  # (position, probability), all at zero to begin with
    for time, total in zip(times, spent, strict=True):
        step = NormalDist(0.0, math.sqrt(time - before))
        limit = _bisect(partial(_excess, density, step, total - used), 0.0, 40.0)
        bounds.append(limit / math.sqrt(time))
        width = 2.0 * limit / (points - 1)
        weights = [width / 3.0 * (1 if i in (0, points - 1) else 4 if i % 2 else 2) for i in range(points)]
        positions = [-limit + i * width for i in range(points)]
        mass = [w * sum(m * step.pdf(x - s) for s, m in density) for w, x in zip(weights, positions, strict=True)]
        density, before, used = list(zip(positions, mass, strict=True)), time, total
    return bounds


def _excess(density: list[tuple[float, float]], step: NormalDist, goal: float, limit: float) -> float:
    """Probability of leaving [-limit, limit] in one step, beyond the goal; falls with the limit."""
    return sum(m * (step.cdf(s - limit) + step.cdf(-s - limit)) for s, m in density) - goal
