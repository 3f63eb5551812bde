"""What a call gains among others it must gain alone: the finding, and the ratio that then counts."""

from __future__ import annotations

import math

import pytest

from aisp_mcp.harness import summary
from aisp_mcp.harness.proc import Account
from aisp_mcp.harness.replicate import Replicate
from aisp_mcp.harness.timing import AGAIN, BASELINE, CANDIDATE, SIDES, Overhead
from aisp_mcp.harness.workers import Lap

FIXED = 200e-6


def lap(count: int, seconds: float, cpu_s: float) -> Lap:
    return Lap(count, seconds, [int(1e9 * seconds / count)] * count, Account(cpu_s=cpu_s))


def replicate(
    among: tuple[float, float], alone: tuple[float, float, float], cpu: tuple[float, float] | None = None
) -> Replicate:
    """among: seconds per call of the baselines and the candidate; alone: of B, B' and C without the fixed cost.

    cpu: processor's seconds alone of the baselines and the candidate, if they differ from the clock's.
    """
    one = Replicate(0, overhead=Overhead(FIXED, 0.0))
    for side, call_s in ((BASELINE, among[0]), (AGAIN, among[0]), (CANDIDATE, among[1])):
        one.rounds.append((side, call_s, call_s, lap(20, 20 * call_s, 20 * call_s)))
    for side, call_s in zip((BASELINE, AGAIN, CANDIDATE), alone, strict=True):
        processor = call_s if cpu is None else cpu[side == CANDIDATE]
        one.alone[side] = [lap(1, FIXED + call_s, processor), lap(1, 3 * (FIXED + call_s), 3 * processor)]
    return one


HONEST = replicate((400e-6, 100e-6), (430e-6, 425e-6, 140e-6))
BATCHED = replicate((400e-6, 20e-6), (430e-6, 425e-6, 425e-6))
HIDDEN_BY_NOISE = replicate((400e-6, 20e-6), (430e-6, 1930e-6, 425e-6), cpu=(430e-6, 425e-6))
SHORT = replicate((60e-6, 3e-6), (90e-6, 90e-6, 90e-6))
SAME = replicate((400e-6, 400e-6), (430e-6, 430e-6, 520e-6))


@pytest.mark.parametrize(
    ("one", "device", "found"),
    [
        (HONEST, "cpu", False),
        (BATCHED, "cpu", True),
        (BATCHED, "cuda", True),
        (HIDDEN_BY_NOISE, "cpu", True),
        (HIDDEN_BY_NOISE, "cuda", False),
        (SHORT, "cpu", False),
        (SAME, "cpu", False),
    ],
    ids=["honest", "batched", "batched on a GPU", "noise by the clock", "no such time on a GPU", "too short", "same"],
)
def test_a_gain_that_single_calls_do_not_show_is_found(one: Replicate, device: str, found: bool) -> None:
    flag = summary.together([one] * 3, device, "parent")
    assert (flag is not None) == found
    if flag is not None:
        assert flag.code == "faster_together"
        assert flag.evidence["saved_among_s"] == pytest.approx(380e-6)


def test_without_single_rounds_nothing_is_said() -> None:
    assert summary.together([HONEST, Replicate(1)], "cpu", "parent") is None


def test_single_calls_take_away_a_gain_and_add_no_loss() -> None:
    ((ratio, _),) = summary.alone_ratios([SAME])
    assert ratio == 0.0


def test_the_ratio_of_single_calls_leaves_out_what_a_round_costs() -> None:
    ((ratio, noise),) = summary.alone_ratios([HONEST])
    assert ratio == pytest.approx(
        math.log(math.sqrt(430 * 425) / 170), rel=1e-6
    )  # half of 340 is left of the candidate
    assert noise == pytest.approx(math.log(430 / 425))


@pytest.mark.parametrize(
    ("call_us", "copy_us", "proven"),
    [
        (50, 50, 1.0),  # half as long, or as long as before without the copy: nobody can tell
        (50, 2, None),  # a copy that is nothing beside the call
    ],
)
def test_a_gain_that_a_spared_copy_explains_is_said_to_be_unproven(
    call_us: float, copy_us: float, proven: float | None
) -> None:
    one = Replicate(0, overhead=Overhead(FIXED, copy_us * 1e-6))
    for side in (*SIDES, *reversed(SIDES)):
        call_s = 1e-6 * (call_us if side == CANDIDATE else 100)
        raw = FIXED + 20 * (call_s + copy_us * 1e-6)
        one.rounds.append((side, call_s, call_s, lap(20, raw, raw)))
    flag = summary.unproven([one], 100 / call_us)
    assert (flag is None) == (proven is None)
    if flag:
        assert (flag.code, flag.severity) == ("clock_disagreement", "warn")
        assert flag.evidence["ratio_proven"] == pytest.approx(proven)
    if proven:
        [(gain, noise)] = summary.proven_ratios([one])
        assert (math.exp(gain), noise) == (pytest.approx(proven), pytest.approx(0.0))
