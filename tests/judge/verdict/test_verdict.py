"""Known answers of the gate: what must be called faster, slower, same, inconclusive, incorrect or invalid."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisp_mcp.judge.records import renamed
from aisp_mcp.judge.records.measurement import Clocks, Verification
from aisp_mcp.judge.records.verdict import Flag, Verdict
from aisp_mcp.judge.statistics import UnusableError
from aisp_mcp.judge.verdict.estimate import choose_clock
from aisp_mcp.judge.verdict.verdict import Judgement, judge

# Five processes with a standard deviation of 0.16 %, and of 1.6 %; the shape is fixed, the mean is zero.
QUIET = (-0.002, -0.001, 0.0, 0.001, 0.002)
NOISY = (-0.02, -0.01, 0.0, 0.01, 0.02)
FATAL = Flag(code="output_forged", severity="fatal", message="The guard bytes around output 0 were overwritten.")
WRONG = Flag(code="incorrect_values", severity="fatal", message="Output 0 differs.")
WARN = Flag(code="neighbour", severity="warn", message="Another process used the CPU.")


def around(effect: float, shape: tuple[float, ...] = QUIET) -> list[float]:
    """Log-ratios of a candidate that makes `effect` of the baseline's speed more, 0.2 is 20 % faster."""
    return [math.log1p(effect) + x for x in shape]


def verified(failure: str | None = None) -> Verification:
    return Verification(calls=640, checked=212, undetected_share=0.01, oracle="float64", failure=failure)


TABLE = [
    ("20 % faster", around(0.20), QUIET, {}, "faster"),
    ("20 % slower", around(-0.20), QUIET, {}, "slower"),
    ("5 % faster", around(0.05), QUIET, {}, "faster"),
    ("5 % slower", around(-0.05), QUIET, {}, "slower"),
    ("1 % faster, any size counts", around(0.01), QUIET, {"margin": 0.0}, "faster"),
    ("1 % slower, any size counts", around(-0.01), QUIET, {"margin": 0.0}, "slower"),
    ("1 % faster, within the margin of 2 %", around(0.01), QUIET, {"margin": 0.02}, "same"),
    ("no difference", around(0.0), QUIET, {}, "same"),
    ("no difference, any size counts", around(0.0), QUIET, {"margin": 0.0}, "inconclusive"),
    ("20 % faster with the sides swapped", [-x for x in around(0.20)], QUIET, {}, "slower"),
    (
        "5 % faster below a noise floor of 6 %",
        around(0.05),
        [0.05, -0.05, 0.05, -0.05, 0.05],
        {"margin": 0.0},
        "inconclusive",
    ),
    ("2 % faster on a noisy machine", around(0.02, NOISY), NOISY, {}, "inconclusive"),
    ("no difference on a noisy machine", around(0.0, NOISY), NOISY, {}, "same"),
    ("no difference on a noisier machine", around(0.0, NOISY), [2 * x for x in NOISY], {}, "inconclusive"),
    ("real, but between the noise floor and the margin", around(0.02), QUIET, {"margin": 0.0201}, "inconclusive"),
    ("a replicate is missing", [*around(0.20)[:4], math.nan], QUIET, {}, "inconclusive"),
    ("no A/A comparison", around(0.20), [], {}, "inconclusive"),
    ("no data", [], [], {}, "inconclusive"),
    ("all times equal", [0.0] * 5, [0.0] * 5, {}, "inconclusive"),
    ("all log-ratios equal", [0.2] * 5, QUIET, {}, "inconclusive"),
    ("one process pair, no difference", [0.001], [0.002], {}, "inconclusive"),
    ("one process pair, 8 % faster", [0.08], [0.0001], {}, "inconclusive"),
    ("one process pair, 83 % faster", [0.604], [0.002], {}, "faster"),
    ("one process pair, 83 % faster, A/A differs by 5 %", [0.604], [0.05], {}, "inconclusive"),
    ("equal numbers of bytes", [0.0] * 5, [0.0] * 5, {"counted": True}, "same"),
    ("half of the bytes", [math.log(2)] * 5, [0.0] * 5, {"counted": True}, "faster"),
    ("20 % faster, fatal flag", around(0.20), QUIET, {"flags": [WARN, FATAL]}, "invalid"),
    ("fatal flag and no data", [], [], {"flags": [FATAL]}, "invalid"),
    ("20 % faster, warning", around(0.20), QUIET, {"flags": [WARN]}, "faster"),
    ("20 % faster, wrong output", around(0.20), QUIET, {"verification": verified("Output 0 differs.")}, "incorrect"),
    ("20 % faster, wrong output as a flag", around(0.20), QUIET, {"flags": [WRONG]}, "incorrect"),
    (
        "wrong output and forged",
        around(0.20),
        QUIET,
        {"flags": [WRONG, FATAL], "verification": verified("No.")},
        "invalid",
    ),
]


@pytest.mark.parametrize(
    ("ratios", "noise", "options", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_known_answer(ratios, noise, options, expected):
    judgement = judge(ratios, noise, **options)
    assert judgement.verdict == expected
    assert judgement.sentence.startswith(f"{expected}: ")


def test_the_sentence_says_it_in_one_line():
    sentence = judge(around(0.83, (-0.02, 0.0, 0.005, 0.01, 0.015)), QUIET, verification=verified()).sentence
    assert sentence == "faster: 1.83x (95 % interval 1.80-1.86), noise floor 0.14 %, 212 of 640 timed calls verified"
    sentence = judge(around(0.0), QUIET).sentence
    assert sentence == "same: 1.000x (95 % interval 0.998-1.002), margin 1 %, noise floor 0.14 %"


def test_noise_without_bounds_is_said_without_digits():
    assert "noise floor over 1000 %" in judge(around(0.2), [5.0, -5.0, 4.0, -4.0, 5.0], margin=0.01).sentence


def test_the_sentence_of_one_process_pair_says_that_it_is_one():
    for ratio in (0.604, 0.0):
        assert judge([ratio], [0.002]).sentence.endswith(
            "one process pair only, more replicates are needed to confirm it"
        )


def test_p_values_are_those_of_the_tests_that_decide():
    from scipy import stats as oracle

    assert judge(around(0.01), QUIET).p_value == pytest.approx(oracle.ttest_1samp(around(0.01), 0.0).pvalue)
    single = 2 * oracle.t.sf(0.6 / (math.sqrt(0.75) * 0.02), 1)
    assert judge([0.6], [-0.02]).p_value == pytest.approx(single)
    assert judge([-0.6], [0.02]).p_value == pytest.approx(single)


def test_the_interval_holds_what_another_use_of_the_programs_shows():
    alone, more, less = (judge(around(0.05), QUIET, apart=math.log1p(apart)) for apart in (0.0, 0.03, -0.06))
    assert (more.verdict, more.ratio, more.interval.low) == ("faster", alone.ratio, alone.interval.low)
    assert more.interval.high == pytest.approx(1.03 * alone.interval.high)
    assert less.verdict == "inconclusive"
    assert less.interval.low == pytest.approx(0.94 * alone.interval.low)


def test_two_process_pairs_have_an_interval_of_their_own():
    from scipy import stats as oracle

    judgement = judge([0.10, 0.12], [0.001, 0.002])
    low, high = oracle.t.interval(0.95, 1, loc=0.11, scale=0.01)
    assert (math.log(judgement.interval.low), math.log(judgement.interval.high)) == pytest.approx((low, high))
    assert "one process pair" not in judgement.sentence


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize(("log_ratio", "p_value"), [(math.log(2), 0.0), (0.0, 1.0)])
def test_counted_metrics_need_no_scatter(n, log_ratio, p_value):
    judgement = judge([log_ratio] * n, [0.0] * n, counted=True)
    assert (judgement.p_value, judgement.noise_floor) == (p_value, 0.0)
    assert judgement.interval.low == judgement.interval.high == pytest.approx(math.exp(log_ratio))


def test_the_sentence_of_an_end_gives_its_reason():
    assert judge([], [], flags=[WRONG], verification=verified("NaN.")).sentence == "incorrect: NaN"
    assert judge([], [], flags=[WRONG]).sentence == "incorrect: output 0 differs"
    assert judge([], [], flags=[FATAL]).sentence == "invalid: the guard bytes around output 0 were overwritten"
    failed = verified("NaN in output 0 at [3, 4].")
    assert judge(around(0.2), QUIET, verification=failed).sentence == "incorrect: NaN in output 0 at [3, 4]"


@pytest.mark.parametrize(
    ("ratios", "noise", "options", "reason"),
    [
        (around(0.025, NOISY), [2 * x for x in NOISY], {"margin": 0.01}, "below the noise floor"),
        (around(0.01, NOISY), NOISY, {"margin": 0.01}, "a ratio of 1 cannot be ruled out"),
        (around(0.0, NOISY), [3 * x for x in NOISY], {}, "too wide to call it the same"),
        (around(0.05, NOISY), [4 * x for x in NOISY], {}, "below the noise floor"),
        (around(0.09, NOISY), [4 * x for x in NOISY], {}, "within the margin"),
        ([0.0], [0.001], {}, "cannot show that it is the same"),
        (around(0.05), [0.05, -0.05, 0.05, -0.05, 0.05], {"margin": 0.0}, "below the noise floor"),
        (around(0.02), QUIET, {"margin": 0.0201}, "within the margin"),
        ([0.1, math.nan], [0.01, 0.02], {}, "1 of 2 values are missing"),
        ([0.1], [0.01, 0.02], {}, "2 A/A differences for 1 replicates"),
    ],
)
def test_inconclusive_says_why(ratios, noise, options, reason):
    judgement = judge(ratios, noise, **options)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason in judgement.sentence


def test_what_cannot_be_computed_is_none_and_flagged():
    judgement = judge([0.1, math.nan], [0.01, 0.02])
    assert (judgement.ratio, judgement.interval, judgement.p_value, judgement.margin) == (None, None, None, None)
    assert [flag.code for flag in judgement.flags] == ["unusable_not_finite"]


def test_the_default_margin_is_one_percent_or_twice_the_noise_floor():
    assert judge(around(0.0), QUIET).margin == 0.01
    wide = judge(around(0.0, NOISY), NOISY)
    assert wide.margin == pytest.approx(2 * wide.noise_floor)
    assert judge([0.0], [0.0001]).margin == 0.10
    for bad in (-0.01, math.nan, math.inf):
        with pytest.raises(ValueError, match="margin"):
            judge(around(0.0), QUIET, margin=bad)


def test_a_stricter_level_widens_the_interval_and_nothing_else():
    usual, strict = judge(around(0.05), QUIET), judge(around(0.05), QUIET, level=0.999)
    assert strict.interval.low < usual.interval.low
    assert strict.interval.level == 0.999
    assert (strict.margin, strict.noise_floor, strict.p_value) == (usual.margin, usual.noise_floor, usual.p_value)
    assert "99.9 % interval" in strict.sentence
    single = judge([0.6], [0.001], level=0.999)
    assert single.verdict is Verdict.FASTER
    assert math.log(single.interval.high) - 0.6 == pytest.approx(math.sqrt(0.75) * 636.6 * 0.001, rel=1e-3)


def test_baselines_that_differ_from_each_other_are_flagged():
    biased = judge(around(0.2), [0.03, 0.0301, 0.0299, 0.03, 0.0302])
    assert [flag.code for flag in biased.flags] == ["noise_biased"]
    assert judge(around(0.2), QUIET).flags == ()


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(-0.5, 0.5)), min_size=1, max_size=12),
    st.sampled_from([None, 0.0, 0.03]),
)
@settings(max_examples=40)
def test_swapping_the_sides_mirrors_the_verdict(replicates, margin):
    ratios, noise = [r for r, _ in replicates], [a for _, a in replicates]
    there: Judgement = judge(ratios, noise, margin=margin)
    back: Judgement = judge([-r for r in ratios], noise, margin=margin)
    mirror = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    assert back.verdict is mirror.get(there.verdict, there.verdict)
    if there.verdict is Verdict.FASTER:
        assert there.interval.low > 1.0
        assert there.ratio > 1.0 + there.noise_floor
        assert there.ratio > 1.0 + there.margin


def simulate(effect: float, sigma: float, margin: float | None, seed: int, trials: int = 1500) -> float:
    """Share of faster or slower among runs of five replicates that differ by sigma (normal)."""
    draw, claims = random.Random(seed).gauss, 0
    for _ in range(trials):
        triples = [(draw(0, sigma), draw(0, sigma), draw(0, sigma)) for _ in range(5)]
        ratios = [(b + second) / 2 - c + math.log1p(effect) for b, second, c in triples]
        claims += judge(ratios, [b - second for b, second, _ in triples], margin=margin).verdict in ("faster", "slower")
    return claims / trials


@pytest.mark.parametrize("sigma", [0.001, 0.004, 0.01, 0.05])
def test_identical_programs_are_rarely_told_apart(sigma):
    assert simulate(0.0, sigma, 0.0, seed=1) <= 0.05
    assert simulate(0.0, sigma, None, seed=2) <= 0.01


def test_a_planted_difference_is_found_where_processes_scatter_by_a_quarter_percent():
    assert simulate(0.02, 0.0025, None, seed=3) >= 0.95
    assert simulate(0.01, 0.0025, 0.0, seed=4) >= 0.80


# --- clocks


@pytest.mark.parametrize(
    ("worker", "options", "used", "codes"),
    [
        (around(0.80), {}, "worker", []),
        (around(0.84), {}, "worker", []),
        (around(0.92), {}, "parent", ["clock_disagreement"]),
        (around(0.70), {}, "worker", ["clock_disagreement"]),
        (around(0.70), {"smaller": False}, "parent", ["clock_disagreement"]),
        (around(1.50), {"smaller": False}, "parent", ["clock_disagreement"]),
        (around(9e9), {}, "parent", ["clock_disagreement"]),
        (around(0.84), {"delta": 0.02}, "parent", ["clock_disagreement"]),
        ([math.nan] * 5, {}, "parent", ["clock_disagreement"]),
        ([1e6] * 5, {}, "parent", ["clock_disagreement"]),
        (around(0.80)[:4], {}, "parent", ["clock_disagreement"]),
        ([], {}, "parent", ["clock_disagreement"]),
    ],
)
def test_the_workers_clock_counts_only_within_delta(worker, options, used, codes):
    clocks, flags = choose_clock(around(0.80), worker, **options)
    assert clocks.used == used
    assert [flag.code for flag in flags] == codes
    assert clocks.ratio_parent == pytest.approx(1.80)
    assert clocks.model_validate_json(clocks.model_dump_json()) == clocks


@pytest.mark.parametrize(
    ("median", "mean", "used"),
    [
        (0.80, 0.80, "worker"),
        (0.84, 0.80, "worker"),  # both agree: the median is the more precise
        (0.92, 0.80, "worker_mean"),  # slow first calls of a round, which the median passes over
        (0.92, 0.84, "worker_mean"),
        (0.92, 0.90, "parent"),
        (5.00, 0.84, "worker_mean"),  # all its time claimed for one call of a round
    ],
)
def test_a_mean_that_agrees_counts_where_the_median_does_not(median, mean, used):
    clocks, flags = choose_clock(around(0.80), around(median), worker_mean=around(mean))
    assert clocks.used == used
    assert [flag.code for flag in flags] == (["clock_disagreement"] if used == "parent" else [])
    assert used == "parent" or clocks.ratio_worker <= 1.0500001 * clocks.ratio_parent


def test_without_the_parents_clock_there_is_no_clock():
    with pytest.raises(UnusableError):
        choose_clock([math.nan] * 5, around(0.8))


def test_a_forged_clock_gains_at_most_delta():
    parent = around(0.0)
    for claimed in (0.01, 0.04, 0.05, 0.0501, 0.1, 1.0, 100.0):
        clocks, _ = choose_clock(parent, around(claimed))
        believed = clocks.ratio_worker if clocks.used == "worker" else clocks.ratio_parent
        assert believed <= 1.0500001


def test_records_with_former_names_are_read_as_the_present_ones():
    former = {"used": "shim_mean", "ratio_parent": 1.0, "ratio_shim": 1.1, "ratio_proven": None, "delta": 0.05}
    clocks = Clocks.model_validate(former)
    assert (clocks.used, clocks.ratio_worker) == ("worker_mean", 1.1)
    for old, new in renamed.FLAGS.items():
        assert Flag(code=old, severity="warn", message="").code == new
    with pytest.raises(ValueError, match="ratio_unknown"):
        Clocks.model_validate({**former, "ratio_unknown": 1.0})
