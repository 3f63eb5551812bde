"""Known answers, scipy as oracle, and coverage by simulation with fixed seeds."""

from __future__ import annotations

import math
import random
from statistics import NormalDist, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.presets import LATIN_SQUARE
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.statistics import UnusableError

FINITE = st.floats(-1e3, 1e3, allow_nan=False)


@pytest.mark.parametrize("df", [0.5, 1, 2, 3, 4, 5, 9, 30, 99, 1000, 100_000])
def test_student_t_against_the_oracle(df):
    from scipy import stats as oracle

    for p in (1e-9, 1e-6, 0.001, 0.025, 0.3, 0.5, 0.7, 0.975, 0.9999, 1 - 1e-7):
        assert stats.t_quantile(p, df) == pytest.approx(oracle.t.ppf(p, df), rel=1e-8, abs=1e-12)
    for x in (-50.0, -3.0, -0.1, 0.0, 0.5, 2.0, 10.0, 40.0):
        assert stats.t_tail(x, df) == pytest.approx(oracle.t.sf(abs(x), df), rel=1e-8)


def test_student_t_at_the_ends():
    assert stats.t_tail(math.inf, 4) == stats.t_tail(-math.inf, 4) == 0.0
    assert stats.t_quantile(0.975, 4) == pytest.approx(2.7764451051977987)
    for p in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="quantile"):
            stats.t_quantile(p, 4)
    with pytest.raises(UnusableError):
        stats.t_tail(1.0, 0)


@given(st.floats(0.1, 200), st.floats(0.1, 200), st.floats(0, 1))
def test_incomplete_beta_against_the_oracle(a, b, x):
    from scipy.special import betainc

    assert stats.incomplete_beta(a, b, x) == pytest.approx(betainc(a, b, x), rel=1e-8, abs=1e-13)


def test_t_interval_is_the_textbook_interval():
    from scipy import stats as oracle

    values = [0.011, 0.019, 0.024, 0.016, 0.032]
    estimate = stats.t_interval(values)
    low, high = oracle.t.interval(0.95, 4, loc=fmean(values), scale=oracle.sem(values))
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-10)
    assert estimate.p_value == pytest.approx(oracle.ttest_1samp(values, 0.0).pvalue, rel=1e-8)
    assert estimate.half_width == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([], "empty"),
        ([0.1], "too_few"),
        ([0.1, 0.1, 0.1], "zero_variance"),
        ([0.0, 0.0], "zero_variance"),
        ([0.1, math.nan, 0.2], "not_finite"),
        ([0.1, math.inf], "not_finite"),
    ],
)
def test_nothing_is_computed_from_unusable_values(values, code):
    with pytest.raises(UnusableError) as raised:
        stats.t_interval(values)
    assert raised.value.code == code


def test_benjamini_hochberg_against_the_oracle():
    from scipy import stats as oracle

    p_values = [0.01, 0.04, 0.03, 0.002, 0.9, 0.04]
    assert stats.benjamini_hochberg(p_values) == pytest.approx(oracle.false_discovery_control(p_values))
    assert stats.benjamini_hochberg([0.2]) == [0.2]
    for bad in ([], [0.5, math.nan], [1.5]):
        with pytest.raises(ValueError, match=r"values|p-value"):
            stats.benjamini_hochberg(bad)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_benjamini_hochberg_for_any_p_values(p_values):
    from scipy import stats as oracle

    assert stats.benjamini_hochberg(p_values) == pytest.approx(oracle.false_discovery_control(p_values), abs=1e-12)


@given(st.lists(FINITE, min_size=1, max_size=50), st.floats(0, 0.98))
def test_quantile_against_the_oracle(values, p):
    import numpy

    assert stats.quantile(values, p) == pytest.approx(numpy.quantile(values, p), rel=1e-9, abs=1e-9)


def test_p99_only_from_a_hundred_calls_on():
    assert stats.percentiles([float(i) for i in range(99)])[2] is None
    assert stats.percentiles([float(i) for i in range(101)]) == pytest.approx((50.0, 95.0, 99.0))
    with pytest.raises(UnusableError) as raised:
        stats.quantile([1.0] * 99, 0.99)
    assert raised.value.code == "too_few"


# --- one replicate


def times(baseline: float, repeat: float, candidate: float) -> dict[Role, float]:
    return dict(zip(Role, (baseline, repeat, candidate), strict=True))


def rounds(palindromes: int, times: dict[Role, float], drift: float = 0.0) -> list[tuple[Role, float]]:
    orders = [LATIN_SQUARE[number % 3] for number in range(palindromes)]
    roles = [role for order in orders for role in order + order[::-1]]
    return [(role, times[role] * math.exp(drift * i)) for i, role in enumerate(roles)]


def test_log_ratio_has_the_right_sign_and_linear_drift_cancels():
    seconds = times(1.02, 1.0, 0.5)
    for drift in (0.0, 0.01, -0.03):
        result = stats.replicate_log_ratio(rounds(6, seconds, drift))
        assert result.log_ratio == pytest.approx((math.log(1.02) + math.log(1.0)) / 2 - math.log(0.5))
        assert result.noise == pytest.approx(math.log(1.02))
        assert (result.palindromes, result.dropped) == (6, 0)


def test_swapping_the_sides_swaps_the_sign():
    there = stats.replicate_log_ratio(rounds(3, times(1.0, 1.0, 0.8)))
    back = stats.replicate_log_ratio(rounds(3, times(0.8, 0.8, 1.0)))
    assert there.log_ratio == pytest.approx(-back.log_ratio)


def test_one_disturbed_palindrome_of_an_order_does_not_count():
    data = rounds(9, times(1.0, 1.0, 1.0))
    for index in (1, 6, 17):  # one of each order
        data[index] = (data[index][0], 9.0)
    assert stats.replicate_log_ratio(data).log_ratio == 0.0


def test_equal_numbers_of_ticks_in_most_rounds_are_not_an_absence_of_noise():
    data = rounds(9, times(1.0, 1.0, 0.5))
    assert stats.replicate_log_ratio(data).noise == 0.0  # in all rounds: no clock is like that
    data[0] = (data[0][0], 1.02)
    result = stats.replicate_log_ratio(data)
    assert result.noise == pytest.approx(math.log(1.02) / 2 / 9)
    assert result.log_ratio == pytest.approx(math.log(2.0))


def test_the_effect_of_a_place_cancels_where_each_side_has_each_place():
    effect = (0.03, -0.01, -0.01, 0.02, -0.02, 0.0)  # as measured on a machine that sleeps between rounds
    data = rounds(9, times(1.1, 1.0, 0.5))
    data = [(role, time * math.exp(effect[i % 6])) for i, (role, time) in enumerate(data)]
    result = stats.replicate_log_ratio(data)
    assert result.log_ratio == pytest.approx(math.log(1.1) / 2 - math.log(0.5))
    assert result.noise == pytest.approx(math.log(1.1))
    one_order = stats.replicate_log_ratio(data[:6])  # the candidate always in the middle: 2.5 % for nothing
    assert one_order.log_ratio == pytest.approx(result.log_ratio + 0.025)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_palindrome_with_a_bad_round_is_dropped_for_all_sides_and_counted(bad):
    data = rounds(6, times(1.0, 1.0, 0.9))
    data[1] = (Role.CANDIDATE, bad)
    result = stats.replicate_log_ratio(data)
    assert (result.palindromes, result.dropped) == (5, 1)
    with pytest.raises(UnusableError):  # one order has none left
        stats.replicate_log_ratio(data[:18])
    data[7], data[13], data[25] = ((data[i][0], bad) for i in (7, 13, 25))
    with pytest.raises(UnusableError):
        stats.replicate_log_ratio(data)


def test_an_unfinished_palindrome_counts_as_dropped():
    assert stats.replicate_log_ratio(rounds(3, times(1.0, 1.0, 1.0))[:-2]).dropped == 1


def test_an_order_that_favours_a_side_is_refused():
    with pytest.raises(ValueError, match="palindrome"):
        stats.replicate_log_ratio([(role, 1.0) for role in Role] * 2)
    with pytest.raises(ValueError, match="palindrome"):
        stats.replicate_log_ratio([(Role.CANDIDATE, 1.0), *rounds(1, times(1.0, 1.0, 1.0))[1:]])
    with pytest.raises(UnusableError):
        stats.replicate_log_ratio([])


# --- the noise floor


def test_noise_floor_combines_spread_and_mean():
    from scipy import stats as oracle

    floor = stats.noise_floor([0.01, -0.01, 0.01, -0.01])
    assert floor.half_width == pytest.approx(math.sqrt(0.75) * oracle.t.ppf(0.975, 4) * 0.01 / 2)
    assert stats.noise_floor([0.02]).half_width == pytest.approx(math.sqrt(0.75) * oracle.t.ppf(0.975, 1) * 0.02)
    biased = stats.noise_floor([0.0300, 0.0301, 0.0299, 0.0300, 0.0302, 0.0298, 0.0300, 0.0301])
    assert biased.half_width == pytest.approx(0.03, rel=0.01)
    assert biased.p_value < 1e-6
    for bad, code in (([], "empty"), ([0.0, 0.0], "zero_variance"), ([math.nan], "not_finite")):
        with pytest.raises(UnusableError) as raised:
            stats.noise_floor(bad)
        assert raised.value.code == code


@pytest.mark.parametrize("n", [1, 3, 5, 10])
def test_identical_programs_stay_below_the_noise_floor_as_often_as_promised(n):
    expected = 0.95  # exact for normal noise but for the bound |mean|, which adds a little
    draw = random.Random(20 + n).gauss
    trials, below = 4000, 0
    for _ in range(trials):
        triples = [(draw(0, 1), draw(0, 1), draw(0, 1)) for _ in range(n)]
        ratio = fmean((b + second) / 2 - c for b, second, c in triples)
        below += abs(ratio) <= stats.noise_floor([b - second for b, second, _ in triples]).half_width
    assert below / trials == pytest.approx(expected, abs=4 * math.sqrt(0.05 * 0.95 / trials))


# --- looks


def test_boundaries_of_five_equal_looks_are_the_published_ones():
    z = [NormalDist().inv_cdf(1 - look.alpha / 2) for look in stats.looks([2, 4, 6, 8, 10])]
    assert z == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-4)


def test_one_look_is_the_fixed_plan():
    (look,) = stats.looks([10])
    assert look.alpha == pytest.approx(0.05, abs=1e-9)
    assert look.level == pytest.approx(0.95)
    assert stats.looks([4, 10])[-1].spent == pytest.approx(0.05)


@pytest.mark.parametrize("plan", [[], [1, 2], [4, 4], [6, 4], [2, 3, 4, 5, 6, 7]])
def test_a_plan_that_is_none_is_refused(plan):
    with pytest.raises(ValueError, match="Looks"):
        stats.looks(plan)


def test_looking_early_keeps_the_error_rate_and_naive_peeking_does_not():
    draw = random.Random(5).gauss
    plan = stats.looks([4, 6, 8, 10])
    trials, planned, naive = 4000, 0, 0
    for _ in range(trials):
        values = [draw(0, 1) for _ in range(10)]
        p = [stats.t_interval(values[: look.replicates]).p_value for look in plan]
        planned += any(x < look.alpha for x, look in zip(p, plan, strict=True))
        naive += any(x < 0.05 for x in p)
    assert planned / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    assert naive / trials > 0.08
