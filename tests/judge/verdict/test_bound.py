"""Gains of back-to-back calls that isolated calls do not show: the finding, and the ratio that then counts."""

from __future__ import annotations

import math

import pytest

from aisp_mcp.judge.evidence import Account, Overhead, Replicate, Round, RoundTiming
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.verdict import bound

FIXED = 200e-6


def timing(count: int, seconds: float, cpu_s: float) -> RoundTiming:
    return RoundTiming(count, seconds, [int(1e9 * seconds / count)] * count, Account(cpu_s=cpu_s))


def replicate(
    among: tuple[float, float],
    alone: tuple[float, float, float],
    scatter: float = 0.0,
    *,
    cost_s: float | None = None,
    apart: float = 0.0,
) -> Replicate:
    """among: seconds per call of the baselines and the candidate; alone: of B, B' and C without the fixed cost.

    scatter: what a round of the baselines took longer, as a fraction; one of the candidate's took three times as long.
    apart: what the second baseline takes longer among others. cost_s: of calls whose inputs came one at a time; without
    it, these are rounds of one call.
    """
    handoffs_s = {} if cost_s is None else {role: [cost_s] * 3 for role in Role}
    replicate = Replicate(0, overhead=Overhead(FIXED, 0.0), handoffs_s=handoffs_s)
    half = ((Role.BASELINE, among[0]), (Role.CANDIDATE, among[1]), (Role.BASELINE_REPEAT, among[0] * (1 + apart)))
    for role, call_s in half + half[::-1]:
        replicate.rounds.append(Round(role, call_s, call_s, timing(20, 20 * call_s, 20 * call_s)))
    for role, call_s in zip((Role.BASELINE, Role.BASELINE_REPEAT, Role.CANDIDATE), alone, strict=True):
        least = call_s + (FIXED if cost_s is None else 0.0)
        rows = (1, 1, 3) if role == Role.CANDIDATE else (1, 1, 1 + scatter) if cost_s is not None else (1, 1, 3)
        replicate.isolated[role] = [least * row for row in rows]
    return replicate


HONEST = replicate((400e-6, 100e-6), (430e-6, 425e-6, 140e-6))
BATCHED = replicate((400e-6, 20e-6), (430e-6, 425e-6, 425e-6))
HIDDEN_BY_NOISE = replicate((400e-6, 20e-6), (430e-6, 1930e-6, 425e-6))
SHORT = replicate((60e-6, 3e-6), (90e-6, 90e-6, 90e-6))

ISOLATED = {"cost_s": 8e-6}
TWICE = replicate((60e-6, 30e-6), (62e-6, 62e-6, 31e-6), **ISOLATED)
SHORT_BATCHED = replicate((60e-6, 3e-6), (60e-6, 60e-6, 60e-6), **ISOLATED)
A_LITTLE = replicate((60e-6, 56e-6), (60e-6, 60e-6, 60e-6), **ISOLATED)
WARMER = replicate((60e-6, 59e-6), (60e-6, 60e-6, 60e-6), **ISOLATED)
RESTLESS = replicate((60e-6, 40e-6), (60e-6, 60e-6, 60e-6), scatter=0.5, **ISOLATED)
APART = replicate((60e-6, 40e-6), (60e-6, 80e-6, 60e-6), **ISOLATED)
APART_AMONG = replicate((60e-6, 40e-6), (60e-6, 60e-6, 60e-6), apart=0.3, **ISOLATED)


@pytest.mark.parametrize(
    ("replicate", "batched"),
    [
        (HONEST, False),
        (BATCHED, True),
        (HIDDEN_BY_NOISE, False),
        (SHORT, False),
        (TWICE, False),
        (SHORT_BATCHED, True),
        (A_LITTLE, True),
        (WARMER, False),
        (RESTLESS, False),
        (APART, False),
        (APART_AMONG, False),
    ],
    ids=[
        "rounds of one call, honest",
        "rounds of one call, batched",
        "rounds of one call, hidden by noise",
        "rounds of one call, too short",
        "isolated, honest",
        "isolated, batched",
        "isolated, a fifteenth gained together",
        "isolated, warmer caches",
        "isolated, the baselines scatter",
        "isolated, the baselines are apart",
        "isolated, the baselines are apart among others",
    ],
)
def test_a_gain_that_calls_by_themselves_do_not_show_is_found(replicate: Replicate, batched: bool) -> None:
    flag = bound.batching_flag([replicate] * 3, "parent")
    assert (flag is not None) == batched
    if flag is not None:
        assert flag.code == "batching"


def test_the_finding_says_what_was_measured() -> None:
    few, isolated = (bound.batching_flag([replicate] * 3, "parent") for replicate in (BATCHED, SHORT_BATCHED))
    assert few is not None
    assert isolated is not None
    assert few.evidence["saved_among_s"] == pytest.approx(380e-6)
    assert isolated.evidence == {"part_among": pytest.approx(0.95), "part_isolated": pytest.approx(0.0)}
    assert isolated.message.startswith("Batching across calls: back-to-back calls save 95 %, isolated calls 0 %.")


def test_who_works_so_in_some_processes_is_found_as_well() -> None:
    half = replicate((60e-6, 30e-6), (60e-6, 60e-6, 60e-6), **ISOLATED)
    replicates = [TWICE, half, TWICE, half, Replicate(2, rounds=TWICE.rounds)]  # the last had rounds of one call alone
    assert bound.batching_flag(replicates, "parent") is not None
    logs = [ratio for ratio, _ in bound.ratios_of_isolated_calls(replicates, "parent")]
    assert logs == [pytest.approx(math.log(ratio), abs=1e-9) for ratio in (2, 1, 2, 1, 2)]


def test_calls_that_are_slower_by_themselves_scatter_as_any() -> None:
    """Ratios of exactly 1 in all replicates would be no measurement."""
    slower = [replicate((60e-6, 3e-6), (60e-6, 60e-6, 1e-6 * us), **ISOLATED) for us in (66, 69, 72)]
    logs = [ratio for ratio, _ in bound.ratios_of_isolated_calls(slower, "parent")]
    assert logs == pytest.approx([-math.log(1 + more) for more in (0.10, 0.15, 0.20)])


def test_a_large_gain_of_a_short_call_is_none_because_handing_out_takes_longer() -> None:
    tenth = replicate((30e-6, 3e-6), (30e-6, 30e-6, 3e-6), **ISOLATED)
    fetched = replicate((200e-6, 20e-6), (204e-6, 204e-6, 24e-6), **ISOLATED)  # inputs come from another core's cache
    assert bound.batching_flag([tenth], "parent") is None
    assert bound.batching_flag([fetched], "parent") is None


def test_a_clock_bent_in_isolated_calls_hides_nothing() -> None:
    """Its time is in the handoff then. In two of five replicates, other programs disturbed a baseline's handoffs."""
    bent = [replicate((300e-6, 15e-6), (300e-6, 300e-6, 15e-6), cost_s=9e-6) for _ in range(5)]
    for index, one in enumerate(bent):
        one.handoffs_s[Role.CANDIDATE] = [294e-6] * 3
        one.handoffs_s[Role.BASELINE] = [2e-3 if index < 2 else 9e-6] * 3
    assert bound.batching_flag(bent, "parent") is not None
    logs = [ratio for ratio, _ in bound.ratios_of_isolated_calls(bent, "parent")]
    assert logs[2:] == pytest.approx([0.0] * 3, abs=1e-9)


def test_a_clock_bent_in_some_isolated_calls_hides_nothing_either() -> None:
    """The shortest times on both clocks are then of different rounds."""
    bent = replicate((300e-6, 15e-6), (300e-6, 300e-6, 15e-6), cost_s=9e-6)
    bent.isolated[Role.CANDIDATE] = [15e-6, 15e-6, 300e-6]
    bent.handoffs_s[Role.CANDIDATE] = [294e-6, 294e-6, 9e-6]
    assert [ratio for ratio, _ in bound.ratios_of_isolated_calls([bent], "parent")] == pytest.approx([0.0], abs=1e-9)


def test_a_process_that_is_slow_by_its_luck_is_no_batching() -> None:
    """Five replicates of two identical programs, as measured: some processes are a seventh slower in isolated calls."""
    alone_us = [(45, 45, 51), (44, 44, 45), (43, 44, 50), (52, 44, 43), (51, 52, 50)]
    same = [replicate((43e-6, 43e-6), tuple(1e-6 * us for us in row), cost_s=9e-6) for row in alone_us]
    assert bound.batching_flag(same, "parent") is None


def test_arguments_that_take_longer_than_the_call_hide_no_gain() -> None:
    """A list of 200,000 numbers is made in 5 ms and added up in 0.7 ms: an honest 2.0x was 1.2x."""
    summed = replicate((1.4e-3, 0.7e-3), (1.4e-3, 1.4e-3, 0.7e-3), cost_s=5e-3)
    assert bound.batching_flag([summed] * 3, "parent") is None
    assert [ratio for ratio, _ in bound.isolated_ratios(summed)] == pytest.approx([math.log(2)])


def test_without_calls_by_themselves_nothing_is_said() -> None:
    assert bound.batching_flag([Replicate(1)], "parent") is None


@pytest.mark.parametrize(
    ("single_us", "least"),
    [
        ((100, 100, 50), None),  # as much by itself
        ((100, 100, 47), None),  # or more
        ((100, 100, 52), None),  # or hardly less
        ((100, 100, 58), 100 / 58),  # less than anybody would be accused of
        ((100, 100, 100), 1.0),
    ],
)
def test_what_a_call_saves_by_itself_is_what_is_proven(single_us: tuple[float, ...], least: float | None) -> None:
    replicate = Replicate(0, overhead=Overhead(0.0, 0.0), handoffs_s={role: [12e-6] * 6 for role in Role})
    replicate.isolated = {role: [1e-6 * us] * 6 for role, us in zip(Role, single_us, strict=True)}
    for role in (*Role, *reversed(Role)):
        call_s = 50e-6 if role == Role.CANDIDATE else 100e-6
        replicate.rounds.append(Round(role, call_s, call_s, timing(20, 20 * call_s, 20 * call_s)))
    flag = bound.lower_bound_flag([replicate], [math.log(2)])
    assert (flag.evidence["ratio_lower_bound"] if flag else None) == (pytest.approx(least) if least else None)
    if least:
        assert flag is not None
        assert flag.code == "clock_resolution_low"
        of_side = dict(bound.lower_bound_seconds([replicate], [math.log(2)], clock="parent"))
        assert of_side[Role.BASELINE] / of_side[Role.CANDIDATE] == pytest.approx(least)


def test_baselines_are_as_far_apart_as_by_themselves_where_that_counts() -> None:
    replicate = Replicate(0, overhead=Overhead(0.0, 0.0), handoffs_s={role: [12e-6] * 6 for role in Role})
    replicate.isolated = {role: [1e-6 * us] * 6 for role, us in zip(Role, (110, 90, 100), strict=True)}
    for role in (*Role, *reversed(Role)):
        call_s = 5e-5 if role == Role.CANDIDATE else 1e-4
        replicate.rounds.append(Round(role, call_s, call_s, timing(20, 20 * call_s, 20 * call_s)))
    [(ratio, noise)] = bound.lower_bound_ratios([replicate], [math.log(2)])
    assert noise == pytest.approx(math.log(110 / 90), rel=0.02)
    assert ratio == pytest.approx(0.0, abs=0.01)


def test_rounds_of_a_candidate_that_others_have_disturbed_are_no_batching() -> None:
    disturbed = replicate((60e-6, 30e-6), (62e-6, 62e-6, 31e-6), **ISOLATED)
    for role, rows in disturbed.isolated.items():
        slow = 3.0 if role == Role.CANDIDATE else 1.0  # three of five
        disturbed.isolated[role] = [rows[0] * factor for factor in (1, slow, slow, 1, slow)]
    assert bound.batching_flag([disturbed] * 3, "parent") is None
    [(ratio, _)] = bound.isolated_ratios(disturbed)
    assert ratio == pytest.approx(math.log(2), rel=0.05)
