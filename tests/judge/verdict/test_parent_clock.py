"""The parent's clock on a CPU: what is subtracted, what others took, and what a reader is told of the rest."""

from __future__ import annotations

import math
import random
import statistics
from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.evidence import Account, Overhead, Replicate, Round, RoundCost, RoundTiming
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.parent.timing.cpu import observed_copies_s
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.measurement import Clocks
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.judge.verdict import bound, verdict
from aisp_mcp.judge.verdict.conclude import Terms, conclude
from aisp_mcp.judge.verdict.estimate import choose_clock, fit_overhead

FIXED, LOOP, CALL = 300e-6, 4e-6, 100e-6


def cost(calls: int, more_s: float = 0.0) -> RoundCost:
    return RoundCost(FIXED + calls * (CALL + LOOP) + more_s, calls * CALL, calls)


def timing(count: int, elapsed_s: float, account: Account, copied_s: float = 0.0, late_s: float = 0.0) -> RoundTiming:
    return RoundTiming(count, elapsed_s, [round(1e9 * CALL)] * count, account, copied_s, late_s)


def test_the_overhead_is_what_rounds_of_one_call_and_of_many_take_beyond_them() -> None:
    disturbed = [cost(1, 5e-3), cost(30, 5e-3)]
    overhead = fit_overhead([*[cost(1)] * 5, *[cost(count) for count in (28, 29, 30, 30, 31)], *disturbed])
    assert (overhead.fixed_s, overhead.per_call_s) == (pytest.approx(FIXED), pytest.approx(LOOP))
    assert overhead.net(FIXED + 30 * (CALL + LOOP), 30) == pytest.approx(CALL)
    assert fit_overhead([]) == Overhead(0.0, 0.0)
    assert fit_overhead([cost(1)]).per_call_s == 0.0


def test_other_programs_do_not_add_to_the_cost_per_call_of_rounds_of_a_few_calls() -> None:
    draw = random.Random(3)

    def rounds(calls: int, number: int, disturbed: float) -> list[RoundCost]:
        late = [draw.uniform(0.3e-3, 4e-3) if draw.random() < disturbed else 0.0 for _ in range(number)]
        return [cost(calls, draw.expovariate(1 / 40e-6) + more_s) for more_s in late]

    quiet = [fit_overhead([*rounds(1, 13, 0.0), *rounds(300, 36, 0.0)]).per_call_s for _ in range(200)]
    busy = [fit_overhead([*rounds(1, 13, 0.1), *rounds(9, 36, 0.6)]).per_call_s for _ in range(200)]
    assert LOOP - 0.15e-6 < statistics.median(quiet) < LOOP + 0.05e-6
    assert statistics.median(busy) < 1.5 * LOOP
    assert max(busy) < 4 * LOOP  # by medians, it would be some 100 microseconds


@pytest.mark.parametrize(
    ("account", "late_s", "running_s"),
    [
        (Account(cpu_s=0.8, first_s=0.8), 0.0, 1.0),
        (Account(cpu_s=0.6, first_s=0.6, delayed_s=0.3), 0.0, 0.7),
        (Account(cpu_s=0.6, first_s=0.6), 0.2, 0.8),
        (Account(cpu_s=0.9, first_s=0.6, delayed_s=0.3), 0.0, 1.0),  # its own helper took the core
        (Account(cpu_s=0.9, first_s=0.9), 0.5, 0.9),  # it computed longer than that leaves
    ],
    ids=["quiet", "a neighbour on its core", "a neighbour on the parent's", "its own thread", "computed longer"],
)
def test_what_others_took_of_a_round_does_not_count(account: Account, late_s: float, running_s: float) -> None:
    assert timing(1, 1.0, account, late_s=late_s).running_s == pytest.approx(running_s)


@pytest.mark.parametrize(
    ("claimed", "single", "credited"),
    [
        (50e-6, 60e-6, 50e-6),  # seen in rounds of one call
        (500e-6, 60e-6, 50e-6),  # more is claimed than is seen
        (20e-6, 60e-6, 20e-6),
        (50e-6, 110e-6, 0.0),  # a single call takes as long as one among others
    ],
)
def test_copies_are_credited_as_far_as_rounds_of_one_call_show_them(
    claimed: float, single: float, credited: float
) -> None:
    seconds = {Role.BASELINE: CALL, Role.BASELINE_REPEAT: CALL, Role.CANDIDATE: 110e-6}
    rounds = [
        Round(role, s, s, timing(10, FIXED + 10 * s, Account(), claimed * 10 if role is Role.CANDIDATE else 0.0))
        for role, s in seconds.items()
    ]
    alone = {role: [FIXED + (single if role is Role.CANDIDATE else CALL)] * 3 for role in Role}
    assert observed_copies_s(rounds, Overhead(FIXED, 0.0), alone) == pytest.approx(credited, abs=1e-9)


def test_identical_programs_are_at_one_in_the_mean_however_noisy_the_parents_clock_is() -> None:
    draw, log_ratios = random.Random(0), list[float]()
    for _ in range(4000):
        parent, worker = draw.gauss(0.0, 0.1), draw.gauss(0.0, 0.01)
        clocks, _ = choose_clock([parent], [worker], smaller=False)
        log_ratios.append({"worker": worker, "parent": parent}[clocks.used])
    assert abs(statistics.fmean(log_ratios)) < 3 * 0.1 / math.sqrt(4000)


@pytest.mark.parametrize(
    ("loop_us", "least"),
    [(0.0, None), (2.0, None), (25.0, 2 * 1.05 / 1.5)],
    ids=["no loop", "less than is conceded", "half of the call"],
)
def test_a_part_of_a_short_call_that_may_be_the_loop_is_no_gain(loop_us: float, least: float | None) -> None:
    replicate = Replicate(0, overhead=Overhead(0.0, 1e-6 * loop_us))
    for role in (*Role, *reversed(Role)):
        call_s = CALL if role in BASELINES else CALL / 2
        replicate.rounds.append(Round(role, call_s, call_s, timing(20, 20 * (call_s + 1e-6 * loop_us), Account())))
    flag = bound.lower_bound_flag([replicate], [math.log(2)])
    assert (flag.evidence["ratio_lower_bound"] if flag else None) == (pytest.approx(least) if least else None)


@pytest.mark.parametrize(
    ("loop_us", "least"), [(0.0, 2.0), (25.0, 2.5 * 1.05 / 1.5)], ids=["no loop", "half of the call"]
)
def test_a_gain_is_no_more_than_the_workers_own_clock_shows(loop_us: float, least: float) -> None:
    """The baselines' rounds were disturbed: the parent's clock says 2.5. The loop is no part of the worker's time."""
    replicate = Replicate(0, overhead=Overhead(0.0, 1e-6 * loop_us))
    for role in (*Role, *reversed(Role)):
        own_s = CALL if role in BASELINES else CALL / 2
        durations = RoundTiming(20, 20 * own_s, [round(1e9 * own_s)] * 20, Account())
        replicate.rounds.append(Round(role, own_s * (1.25 if role in BASELINES else 1.0), own_s, durations))
    flag = bound.lower_bound_flag([replicate], [math.log(2.5)])
    assert flag is not None
    assert flag.evidence["ratio_lower_bound"] == pytest.approx(least)
    assert "own clocks show less" in flag.message


@pytest.mark.parametrize(
    ("used", "begins"),
    [
        ("with_host", "faster: 1.50x with the host's time, 4.00x on the device alone (95 %"),
        ("worker", "faster: 1.50x (95 %"),
    ],
)
def test_a_ratio_with_the_hosts_time_names_that_of_the_device(used: str, begins: str) -> None:
    outcome = verdict.judge([math.log(1.5) + 1e-4 * turn for turn in range(-2, 3)], [1e-4, -1e-4, 2e-4, 0.0, 1e-4])
    clocks = Clocks(used=used, ratio_parent=1.5, ratio_worker=1.5, delta=0.05)
    flag = Flag(code="host_bound", severity="note", message="", evidence={"ratio_alone": 4.0, "ratio_with_host": 1.5})
    assert verdict.with_device_alone(outcome, clocks, [flag]).sentence.startswith(begins)


@pytest.mark.parametrize(
    ("used", "worker", "begins"),
    [
        ("worker", 1.52, "faster: 1.50x (95 %"),
        ("lower_bound", 1.80, "faster: at least 1.50x by the parent's clock, 1.80x by the worker's own, noise"),
        ("parent", 1.80, "faster: at least 1.50x by the parent's clock, 1.80x by the worker's own, noise"),
        ("parent", 1.40, "faster: 1.50x (95 %"),
        ("parent", None, "faster: 1.50x (95 %"),
        ("parent", 0.80, "slower: at most 0.65x as fast by the parent's clock, 0.80x by the worker's own, noise"),
    ],
)
def test_the_sentence_says_where_the_ratio_is_only_what_is_proven(used: str, worker: float | None, begins: str) -> None:
    ratio = 0.65 if begins.startswith("slower") else 1.5
    outcome = verdict.judge([math.log(ratio) + 1e-4 * turn for turn in range(-2, 3)], [1e-4, -1e-4, 2e-4, 0.0, 1e-4])
    clocks = Clocks(used=used, ratio_parent=ratio, ratio_worker=worker, delta=0.05)
    assert verdict.as_lower_bound(outcome, clocks).sentence.startswith(begins)


def test_a_bound_that_does_not_rule_out_1_is_not_said_to_be_at_least_so_much() -> None:
    outcome = verdict.judge([0.1, -0.2, 0.9], [0.2, -0.1, 0.3])
    assert outcome.verdict == "inconclusive"
    ratio = outcome.ratio or 0.0
    clocks = Clocks(used="lower_bound", ratio_parent=ratio, ratio_worker=1.8, delta=0.05)
    text = verdict.as_lower_bound(outcome, clocks).sentence
    assert "by the parent's clock, 1.80x by the worker's own" in text
    assert "at least" not in text
    assert "interval" not in text


def concluded_on_a_cpu(parent: float, worker: float) -> Comparison:
    """The comparison of five nearly equal replicates with these ratios by the parent's and by the worker's clock."""
    replicates = []
    for index in range(5):
        replicate = Replicate(index, overhead=Overhead(0.0, 0.0))
        for position, role in enumerate((*Role, *reversed(Role))):
            scatter = 1 + 0.001 * ((index + position) % 3)
            parent_s, worker_s = (scatter * CALL / (1.0 if role in BASELINES else ratio) for ratio in (parent, worker))
            durations_ns = [round(1e9 * worker_s)] * 20
            replicate.rounds.append(
                Round(role, parent_s, worker_s, RoundTiming(20, 20 * parent_s, durations_ns, Account()))
            )
        replicates.append(replicate)
    pair: Any = SimpleNamespace(target="target", candidate="candidate")
    opened: Any = {"goal": "speed", "error_ratio": 1.0, "oracle": "float64", "facts": {}, "unit": ""}
    opened["work"] = {"flops": 0.0, "bytes": 0.0, "items": 0.0}
    return conclude(Terms(pair, PRESETS["default"], ALL, opened, "L1", 1, None, {}), replicates, [])


@pytest.mark.parametrize(
    ("parent", "worker", "expected"),
    [(0.08, 0.09, "slower"), (0.8, 1.0, "inconclusive"), (0.8, 1.3, "inconclusive")],
    ids=["both clocks show the loss", "only the parent's does", "the worker's shows a gain"],
)
def test_a_loss_needs_both_clocks(parent: float, worker: float, expected: str) -> None:
    comparison = concluded_on_a_cpu(parent, worker)
    assert (comparison.verdict.value, comparison.clocks and comparison.clocks.used) == (expected, "parent")


def test_calls_that_vanish_in_the_overhead_are_inconclusive() -> None:
    comparison = concluded_on_a_cpu(-1.5, 1.5)  # on a busy machine, more is subtracted than was measured
    assert comparison.verdict.value == "inconclusive"
    assert comparison.sentence == "inconclusive: 1 of 1 palindromes have no usable time"
    assert "unusable_too_few" in [flag.code for flag in comparison.flags]
