"""Calls that are compared: enough of them, and none that a candidate could know beforehand."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent.session import PhaseTimer
from aisp_mcp.judge.parent.timing.driver import FIRST_CALL_S, START_DEADLINE_S, Driver
from aisp_mcp.judge.presets import GPU_CALLS, PRESETS, Preset, sample_calls, samples, undetected_share
from aisp_mcp.judge.protocol.roles import Role

OTHERS = [replace(preset, replicates=number) for preset in PRESETS.values() for number in (1, 2, 7, 29, 30, 49, 50)]


@pytest.mark.parametrize(
    "preset", [adapted for one in (*PRESETS.values(), *OTHERS) for adapted in (one, one.for_gpu())]
)
def test_enough_random_calls_are_compared_in_rounds_that_are_drawn(preset: Preset) -> None:
    rounds, draw = 2 * preset.palindromes, random.Random(1)
    drawn = [preset.comparisons_per_round(draw) for _ in range(200)]
    first_look = preset.first_look
    assert {len(sample) for sample in drawn} == {rounds}
    assert min(map(min, drawn)) >= 1
    assert (min(map(sum, drawn)) + preset.elsewhere) * first_look >= samples()
    assert max(map(max, drawn)) - min(map(min, drawn)) <= 1
    if len(set(drawn[0])) > 1:  # no round is known to have fewer
        assert all(len({sample[index] for sample in drawn}) == 2 for index in range(rounds))


def test_so_many_are_needed_for_the_share_that_is_promised() -> None:
    assert undetected_share(samples(), 10_000) <= 0.046 < undetected_share(samples() - 1, 10_000)


def test_each_call_is_as_likely_to_be_compared() -> None:
    draw = random.Random(2)
    drawn = [sample_calls(10, 1, draw) for _ in range(2000)]
    assert {len(sample) for sample in drawn} == {1}
    seen = Counter(sample[0] for sample in drawn)
    assert set(seen) == set(range(10))
    assert min(seen.values()) > 2000 / 10 / 2


@pytest.mark.parametrize(
    ("call_s", "on_gpu", "most"),
    [(5e-6, True, GPU_CALLS), (1e-3, True, 9), (5e-6, False, 1200)],
    ids=["its inputs would take longer than it", "it fills a round", "on a CPU"],
)
def test_rounds_on_a_gpu_have_no_more_calls_than_are_soon_prepared(call_s: float, on_gpu: bool, most: int) -> None:
    preset = PRESETS["default"].for_gpu() if on_gpu else PRESETS["default"]
    opened, options = {"layout": {"capacity": 4096}}, SimpleNamespace(preset=preset)
    session: Any = SimpleNamespace(opened=opened, options=options, random=random.Random(5))
    driver = Driver(session, 0)
    driver.claimed_s = driver.call_s = dict.fromkeys(Role, call_s)
    for role, count in driver.counts().items():
        assert 0.9 * most <= count <= most, role


@pytest.mark.parametrize(
    ("count", "expected", "results"), [(1, 1, 1), (5, 5, 5), (5, 4, 4), (5, 9, 5), (5, 0, 0), (5, 2, 2)]
)
def test_no_more_calls_are_compared_than_there_are(count: int, expected: int, results: int) -> None:
    drawn = sample_calls(count, expected, random.Random(3))
    assert drawn == sorted(set(drawn))
    assert len(drawn) == results


@pytest.mark.parametrize(
    ("text", "device", "expected"),
    [
        ("def run(x): ...", "cpu", FIRST_CALL_S + 50 * 0.1),
        ("run = torch.compile(work)", "cpu", START_DEADLINE_S),
        ("def run(x): ...", "cuda", START_DEADLINE_S),
    ],
)
def test_only_a_first_call_that_may_compile_has_minutes(
    tmp_path: Path, text: str, device: str, expected: float
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text)
    pair = Pair("ch01:rows", tmp_path / "baseline_rows.py", "", candidate)
    session: Any = SimpleNamespace(options=SimpleNamespace(device=device), pair=pair, timer=PhaseTimer())
    driver = Driver(session, 0)
    assert driver.deadline_s(Role.BASELINE, 1) == driver.deadline_s(Role.CANDIDATE, 1) == START_DEADLINE_S
    driver.call_s[Role.BASELINE] = 0.1
    assert driver.deadline_s(Role.CANDIDATE, 1) == pytest.approx(expected)
