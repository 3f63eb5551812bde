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
    replicate = Replicate(0, overhead=Overhead(FIXED, 0.0), handoff_s=cost_s)
    half = ((Role.BASELINE, among[0]), (Role.CANDIDATE, among[1]), (Role.BASELINE_REPEAT, among[0] * (1 + apart)))
    for role, call_s in half + half[::-1]:
        replicate.rounds.append(Round(role, call_s, call_s, timing(20, 20 * call_s, 20 * call_s)))
    for role, call_s in zip((Role.BASELINE, Role.BASELINE_REPEAT, Role.CANDIDATE), alone, strict=True):
        least = call_s + (FIXED if cost_s is None else cost_s)
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


def test_a_large_gain_of_a_short_call_is_none_because_handing_out_takes_longer() -> None:
    tenth = replicate((30e-6, 3e-6), (30e-6, 30e-6, 3e-6), **ISOLATED)
    fetched = replicate((200e-6, 20e-6), (204e-6, 204e-6, 24e-6), **ISOLATED)  # inputs come from another core's cache
    assert bound.batching_flag([tenth], "parent") is None
    assert bound.batching_flag([fetched], "parent") is None


def test_without_calls_by_themselves_nothing_is_said() -> None:
    assert bound.batching_flag([Replicate(1)], "parent") is None


@pytest.mark.parametrize(
    ("single_us", "least"),
    [
        ((112, 112, 62), None),  # as much by itself
        ((112, 112, 59), None),  # or more
        ((112, 112, 64), None),  # or hardly less
        ((112, 112, 70), 100 / 58),  # less than anybody would be accused of
        ((112, 112, 112), 1.0),
    ],
)
def test_what_a_call_saves_by_itself_is_what_is_proven(single_us: tuple[float, ...], least: float | None) -> None:
    replicate = Replicate(0, overhead=Overhead(0.0, 0.0), handoff_s=12e-6)
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
    replicate = Replicate(0, overhead=Overhead(0.0, 0.0), handoff_s=12e-6)
    replicate.isolated = {role: [1e-6 * us] * 6 for role, us in zip(Role, (122, 102, 112), strict=True)}
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
