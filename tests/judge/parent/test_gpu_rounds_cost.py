"""Costs of rounds on a GPU, spent once and only on informative rounds. No GPU is needed: a model is asked."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import BASE, CALL, HOST, Verifier, trial, twice_as_fast

from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.gpu import round as gpu_round
from aisp_mcp.judge.parent.timing.gpu import schedule as gpu_rounds
from aisp_mcp.judge.parent.timing.gpu import turns as gpu_series
from aisp_mcp.judge.parent.timing.gpu.mode import MIN_CALLS, Mode, Modes
from aisp_mcp.judge.parent.timing.gpu.round import DeviceMemory, GpuRound
from aisp_mcp.judge.parent.timing.replicate import SOME_MODES, ReplicateRun
from aisp_mcp.judge.presets import PRESETS, Preset, samples
from aisp_mcp.judge.protocol.draws.rng import MODES
from aisp_mcp.judge.protocol.messages import DUMMY, GATE, ISOLATED
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.verifier import handoff_gpu as handoff


def asked_for(one: Any, role: Role, expected: int = 0, unwanted: int = DUMMY | ISOLATED) -> list[int]:
    """The numbers of calls of the side's rounds with all bits of `wanted` and none of `unwanted`."""
    return [count for count, bits in one.workers[role].asked if bits & expected == expected and not bits & unwanted]


def faster(driver: Driver) -> None:
    """Its own clock says that the candidate takes half the time."""
    driver.result.rounds = [
        replace(row, median_s=row.median_s / (1 + (row.role is Role.CANDIDATE))) for row in driver.result.rounds
    ]


def test_where_no_baseline_can_wait_the_host_is_asked_once() -> None:
    driver = trial(Verifier(), call_s=CALL / 2)
    for role in BASELINES:
        driver.workers[role].most = 0  # type: ignore[attr-defined]
    faster(driver)
    gpu_rounds.measure(driver)
    device = driver.result.device
    assert device.with_host == device.device_only == pytest.approx(dict.fromkeys(Role, HOST), rel=1e-3)
    assert device.isolated_with_host == device.isolated
    counted = asked_for(driver, Role.CANDIDATE, unwanted=DUMMY | ISOLATED | GATE)
    assert len(counted) <= 2 * gpu_rounds.ROUNDS  # with those that are dropped, and one with copies


def test_where_only_the_candidate_cannot_wait_its_host_is_compared_with_the_baselines() -> None:
    driver = trial(Verifier(), most=0, call_s=CALL / 2)
    gpu_rounds.measure(driver)
    device = driver.result.device
    assert [device.device_only[role] for role in BASELINES] == pytest.approx([CALL] * 2, rel=1e-3)
    assert [device.with_host[role] for role in Role] == pytest.approx([HOST] * 3, rel=1e-3)


@pytest.mark.parametrize("slower", [1, 4])
def test_few_calls_by_themselves_are_needed_where_no_host_is_in_their_time(slower: int) -> None:
    """Without the gate the first calls behind a pause take longer than the others. All sides have as many."""
    driver = twice_as_fast()
    for role in BASELINES:
        driver.workers[role].call_s *= slower  # type: ignore[attr-defined]
    gpu_rounds.measure(driver)
    behind, openly = (
        {
            count
            for role in (Role if kind else (Role.CANDIDATE,))
            for count in asked_for(driver, role, ISOLATED | kind, DUMMY | GATE ^ kind)
        }
        for kind in (GATE, 0)
    )
    least = min(max(round(handoff.ROUND_S / (20 * slower * CALL)), 1), handoff.CALLS)
    assert len(behind) == 1
    assert behind <= {least, least + 1}
    most = min(min(asked_for(driver, role, GATE)) for role in Role)
    assert all(min(handoff.UNGATED_CALLS[0], most) <= count <= handoff.UNGATED_CALLS[1] for count in openly)
    assert openly


def test_how_many_calls_make_a_round_is_known_from_the_replicate_before() -> None:
    """Its own clock counts the host: the first replicate is asked for too few, and then for more."""
    first, second = trial(Verifier()), trial(Verifier())
    second.session = first.session
    for submission in (first, second):
        submission.claimed_s = dict.fromkeys(Role, 4 * CALL)
        gpu_rounds.measure(submission)
    rounds = [asked_for(submission, Role.BASELINE, GATE) for submission in (first, second)]
    assert [len(counts) for counts in rounds] == [gpu_rounds.ROUNDS + 1, gpu_rounds.ROUNDS]
    assert rounds[0][0] * CALL < gpu_series.MIN_S <= min(rounds[1]) * CALL
    first.session.modes.change(Role.CANDIDATE, Mode().without_gate("it waits for its device"))
    assert first.session.modes.candidate.call_s is None  # with the host it takes longer


def test_what_is_compared_in_the_parents_own_rounds_is_counted_and_enough() -> None:
    verifier = Verifier()
    sampled: list[int] = []
    ask = verifier.ask

    def noted(verb: str, **request: Any) -> dict[str, Any]:
        sampled.extend([len(request["sample"])] if verb == "check" else [])
        return ask(verb, **request) | {"checked": len(request.get("sample", ()))}

    verifier.ask = noted  # type: ignore[method-assign]
    driver = trial(verifier, call_s=CALL / 2)
    faster(driver)
    gpu_rounds.measure(driver)
    isolated, many = (
        asked_for(driver, Role.CANDIDATE, ISOLATED, DUMMY),
        asked_for(driver, Role.CANDIDATE, GATE)[-gpu_rounds.ROUNDS :],
    )
    assert driver.result.checked == gpu_rounds.ROUNDS * (gpu_round.COMPARED + gpu_round.ISOLATED_COMPARED)
    assert (
        sum(sampled) == driver.result.checked + gpu_round.COMPARED
    )  # and a round that was too short and does not count
    assert driver.result.device.candidate_calls == sum(isolated) + sum(many)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize("count", [2, 3, 8, 300])
def test_the_share_that_is_promised_is_kept_on_a_gpu(preset: Preset, count: int) -> None:
    """Also where a round has few calls, and none is asked for by itself because there is no gain."""
    driver = trial(Verifier())
    driver.compare = lambda side, sample: {  # type: ignore[method-assign]
        "failure": None,
        "code": None,
        "checked": len(sample),
        "ratio": 0.0,
    }
    round_of = GpuRound(DeviceMemory(driver), Role.CANDIDATE, Modes(), True, count)
    round_of.request = {"counts": {}, "seed": 1, "sample": round_of.sample()}
    assert round_of.outputs_right()
    replicates = preset.first_look
    timed = sum(preset.for_gpu().comparisons_per_round(random.Random(1)))
    assert replicates * (timed + gpu_rounds.ROUNDS * round_of.checked) >= samples()


@pytest.mark.parametrize(("role", "opened"), [(Role.BASELINE, ["aa"]), (Role.CANDIDATE, ["aa", "cc"])])
def test_of_a_workers_memory_only_what_is_needed_is_opened(role: Role, opened: list[str]) -> None:
    verifier, seen = Verifier(), []
    verifier.ask = lambda verb, **request: seen.append(request) or {"own": True, "whole": True}  # type: ignore
    driver = trial(verifier)
    control: Any = driver.workers[role].control
    allocations = [(BASE, 256, "aa"), (BASE + 512, 256, "bb"), (BASE + 1024, 256, "cc"), (BASE + 4096, 256, "dd")]
    control.read_allocations, control.addresses = lambda: allocations, [BASE + 1024, BASE + 1279, BASE + 2048]
    assert GpuRound(DeviceMemory(driver), role, Modes(), True, 3).map_memory()
    [request] = seen
    assert [handle for *_, handle in request["allocations"]] == opened


@pytest.mark.parametrize(("thorough", "kinds"), [(0, len(MODES) - 1), (1, SOME_MODES)])
def test_one_replicate_sees_all_kinds_of_unusual_inputs(thorough: int, kinds: int) -> None:
    drawn = set()
    for turn in range(30):
        driver, filled = trial(Verifier()), list[str]()
        driver.session = replace(driver.session, thorough=thorough, random=random.Random(turn))
        driver.fill = lambda counts, mode="plain", sample=(), filled=filled: filled.append(mode)  # type: ignore[method-assign]
        timing = driver.result.rounds[0].timing
        strategy: Any = SimpleNamespace(pilot_rounds=1, run_round=lambda *_, timing=timing: timing)
        driver.verify = lambda *_: None  # type: ignore[method-assign]
        run = ReplicateRun(driver, strategy)
        run._battery = lambda: None  # type: ignore[method-assign]
        run._pilot()
        unusual = [mode for mode in filled if mode != "plain"]
        assert len(unusual) == len(set(unusual)) == kinds
        assert filled[0] == "plain"
        drawn.update(unusual)
    assert drawn == set(MODES[1:])


def test_all_three_processes_are_told_to_end_before_one_is_waited_for() -> None:
    driver, said = trial(Verifier()), list[str]()
    for worker in driver.workers.values():
        worker.kill = lambda: said.append("kill")  # type: ignore[method-assign]
        worker.close = lambda: said.append("close")  # type: ignore[method-assign]
    driver.close()
    assert said == ["kill"] * 3 + ["close"] * 3


def test_slow_calls_are_asked_for_one_by_one_behind_the_gate_and_where_their_host_counts_more_often() -> None:
    """Outputs of a round without the gate have to lie where those of one before lay: of as many calls."""
    driver = trial(Verifier(), call_s=1.5e-3)
    for role in BASELINES:
        driver.workers[role].call_s = 3e-3  # type: ignore[attr-defined]
    driver.claimed_s = dict.fromkeys(Role, 3e-3)
    faster(driver)
    driver.result.rounds = [
        replace(row, median_s=row.median_s / 9 if row.role is Role.CANDIDATE else row.median_s)
        for row in driver.result.rounds
    ]
    gpu_rounds.measure(driver)
    assert driver.result.device.overcounted == ""
    assert driver.result.device.with_host
    assert (
        set(asked_for(driver, Role.BASELINE, GATE))
        == set(asked_for(driver, Role.CANDIDATE, GATE | ISOLATED, DUMMY))
        == {1}
    )
    assert set(asked_for(driver, Role.CANDIDATE, ISOLATED, GATE)) == {handoff.MIN_UNGATED}
    warm_up, *counted = asked_for(driver, Role.BASELINE, unwanted=GATE | ISOLATED | DUMMY)
    assert warm_up >= max(
        asked_for(driver, Role.BASELINE, ISOLATED, GATE | DUMMY)
    )  # or these were the first to need the memory
    assert min(counted) >= MIN_CALLS
