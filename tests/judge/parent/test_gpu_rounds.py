"""Timing by the parent's clock on a GPU: rounds behind the gate, and their substitutes.

No GPU is needed: a model of three processes is asked.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_model import CALL, COPY, HOST, TURNS, Verifier, trial, twice_as_fast

from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.parent.processes import process as workers
from aisp_mcp.judge.parent.processes.process import WorkerProcess
from aisp_mcp.judge.parent.session import ComparisonAborted
from aisp_mcp.judge.parent.timing.gpu import round as gpu_round
from aisp_mcp.judge.parent.timing.gpu import schedule as gpu_rounds
from aisp_mcp.judge.parent.timing.gpu import turns as gpu_series
from aisp_mcp.judge.parent.timing.gpu.mode import MAX_STALLED
from aisp_mcp.judge.protocol.layout import NO_COPY_CALLS
from aisp_mcp.judge.protocol.messages import DUMMY, GATE, ISOLATED, NO_COPY
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.verdict.estimate import IsolatedCallEvidence, with_usable_seconds
from aisp_mcp.judge.verifier import handoff_gpu as handoff


@pytest.mark.parametrize(
    ("candidate", "shared", "seconds", "hindered"),
    [
        ({}, False, CALL, None),
        ({"call_s": CALL / 2}, False, CALL / 2, None),
        ({"early": True}, False, CALL, None),
        ({"most": 20, "call_s": 1e-3}, False, 1e-3, None),
        ({"most": 115}, False, CALL, None),
        ({"most": 20}, False, HOST, "too few of its calls"),
        ({"most": 0}, False, HOST, "waits for its device"),
        ({"waits": False}, False, HOST, "does not support the gate"),
        ({}, True, CALL, None),
        ({"anew": True}, False, CALL + COPY, "for inputs at other addresses"),
        ({"most": 0}, True, HOST, "waits for its device"),
        ({"most": 0, "moves": True}, False, HOST, "other addresses in each round"),
        ({"races": True}, False, HOST, "behind the gate call 0: wrong"),
        ({"raises": True}, False, CALL + COPY, "only works on the inputs"),
    ],
    ids=[
        "as the baseline",
        "twice as fast",
        "answers before the device is done",
        "fills its queue",
        "hardly fills its queue",
        "says that it fills its queue",
        "waits for its device",
        "has an old driver",
        "uses one buffer",
        "prepares for each address",
        "uses one buffer and waits",
        "moves and waits",
        "does not wait for its inputs",
        "insists on its inputs",
    ],
)
def test_a_call_takes_what_the_device_needs(
    candidate: dict[str, Any], shared: bool, seconds: float, hindered: str | None
) -> None:
    driver = trial(verifier := Verifier(shared=shared), **candidate)
    gpu_rounds.measure(driver)
    device = with_usable_seconds(driver.result.device)
    assert device.device_only == pytest.approx(dict.fromkeys(BASELINES, CALL) | {Role.CANDIDATE: seconds}, rel=1e-3)
    assert device.copying == bool(shared or {"raises", "races", "moves", "anew"} & candidate.keys())
    assert (hindered or "") in driver.result.device.overcounted
    assert bool(hindered) == bool(driver.result.device.overcounted)
    assert not verifier.posted


def test_wrong_outputs_end_the_comparison_where_nothing_excuses_them() -> None:
    with pytest.raises(ComparisonAborted) as raised:
        gpu_rounds.measure(trial(Verifier(), wrong=True))
    assert raised.value.code == "incorrect_output"


@pytest.mark.parametrize("most", [1000, 0], ids=["behind the gate", "without it"])
def test_nobody_waits_for_who_does_not_answer(most: int) -> None:
    driver = trial(verifier := Verifier(), ends=True, most=most)
    with pytest.raises(ComparisonAborted) as raised:
        gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    assert (raised.value.code, worker.closed, verifier.posted) == ("candidate_hang", True, [])


def test_who_is_asked_for_more_calls_has_named_their_outputs_before() -> None:
    """Or rounds without the gate, which look where outputs lie before they run, would look nowhere."""
    driver = trial(Verifier())
    driver.claimed_s[Role.CANDIDATE] = 1e-3
    gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    for index, (count, bits) in enumerate(worker.asked):
        if bits & GATE:
            assert count <= max(before for before, kind in worker.asked[:index] if kind & NO_COPY and not kind & GATE)


def test_one_odd_round_of_three_changes_nothing() -> None:
    driver = trial(verifier := Verifier())
    worker: Any = driver.workers[Role.CANDIDATE]
    took, rounds = worker._took, []

    def odd(count: int, bits: int, begins_s: float, least_s: float) -> RoundTiming:
        rounds.append(bits & GATE)
        timing: RoundTiming = took(count, bits, begins_s, least_s)
        return replace(timing, elapsed_s=timing.elapsed_s / 2) if sum(map(bool, rounds)) == 2 else timing

    worker._took = odd
    gpu_rounds.measure(driver)
    assert driver.result.device.device_only[Role.CANDIDATE] == pytest.approx(CALL, rel=1e-3)
    assert not verifier.posted


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with copies"])
def test_calls_that_are_worked_on_together_show_by_calls_by_themselves(shared: bool) -> None:
    slow = 10 * CALL
    driver = trial(Verifier(shared=shared), call_s=slow, together=True)
    for role in BASELINES:
        driver.workers[role].call_s = slow  # type: ignore[attr-defined]
    driver.claimed_s = dict.fromkeys(Role, slow)
    gpu_rounds.measure(driver)
    device = with_usable_seconds(driver.result.device)
    assert device.device_only[Role.CANDIDATE] == pytest.approx(CALL, rel=1e-3)
    assert device.isolated == pytest.approx(dict.fromkeys(Role, TURNS + slow))
    hidden = 9 * CALL
    assert IsolatedCallEvidence(device.device_only, device.isolated, 0.0, 0.0).hidden_s == pytest.approx(
        hidden, rel=1e-2
    )


def test_calls_by_themselves_are_asked_for_in_the_same_way_where_there_is_a_gain() -> None:
    driver = trial(Verifier(), call_s=CALL / 2)
    gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    kinds = [(bool(bits & GATE), count) for count, bits in worker.asked if bits & ISOLATED]
    assert [kind for kind, _ in kinds] == [True] * gpu_rounds.ROUNDS  # with the host all are alike
    assert all(1 < count <= handoff.CALLS + 1 for _, count in kinds)
    both = dict.fromkeys(BASELINES, TURNS + CALL)
    assert driver.result.device.isolated == pytest.approx(both | {Role.CANDIDATE: TURNS + CALL / 2})
    assert driver.result.device.gated


def test_to_get_inputs_with_the_host_takes_a_baseline_no_less_than_a_dummy_call() -> None:
    """The cost of a baseline's own calls scatters as its host does; a surplus is conceded, a deficit is not."""
    driver = trial(Verifier(), call_s=10 * CALL, most=0)
    driver.claimed_s = dict.fromkeys(Role, 10 * CALL)
    for role, restless_s in ((Role.BASELINE, -1e-4), (Role.BASELINE_REPEAT, 1e-3)):
        worker: Any = driver.workers[role]
        worker.call_s, worker.restless_s = 20 * CALL, restless_s
    gpu_rounds.measure(driver)
    device = with_usable_seconds(driver.result.device)
    assert device.isolated == pytest.approx(
        {role: s + TURNS + 1e-3 * (role == Role.BASELINE_REPEAT) for role, s in device.device_only.items()}
    )
    assert IsolatedCallEvidence(device.device_only, device.isolated, 0.0, 0.0).costs_s == pytest.approx(
        [TURNS, TURNS + 1e-3]
    )


def test_a_call_by_itself_takes_more_room_in_a_stream() -> None:
    driver = trial(Verifier(), most=20, call_s=1e-3)
    for role in BASELINES:
        driver.workers[role].call_s = 2e-3  # type: ignore[attr-defined]
    driver.claimed_s = dict.fromkeys(Role, 0.1e-3)
    gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    assert driver.session.modes.candidate.max_calls < NO_COPY_CALLS
    counted = [count for count, bits in worker.asked if bits & ISOLATED and bits & GATE]
    assert counted
    assert max(counted) <= driver.session.modes.candidate.max_calls // 2


def test_calls_by_themselves_that_need_their_host_are_begun_by_it() -> None:
    """It stands still while a stream waits: or it could do the work of a short call between two turns."""
    driver = twice_as_fast(by_host=True)
    gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    isolated = [bool(bits & GATE) for _, bits in worker.asked if bits & ISOLATED]
    assert isolated[: MAX_STALLED + 1] == [True] * (MAX_STALLED + 1)
    assert "need their host" in driver.result.device.overcounted
    baseline: Any = driver.workers[Role.BASELINE]
    last = [bits & (GATE | DUMMY) for _, bits in baseline.asked if bits & ISOLATED][-1:]
    assert last == [DUMMY]  # without the gate as well, since both kinds take differently long
    assert isolated[-gpu_rounds.ROUNDS :] == [False] * gpu_rounds.ROUNDS


def test_whose_device_keeps_the_verifier_waiting_is_gone() -> None:
    driver = twice_as_fast(holds=True)
    with pytest.raises(ComparisonAborted) as raised:
        gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    assert (raised.value.code, worker.closed) == ("candidate_hang", True)


def test_who_does_not_come_to_wait_for_inputs_of_its_calls_is_let_go() -> None:
    driver = twice_as_fast()
    worker: Any = driver.workers[Role.CANDIDATE]
    took = worker.gated_round

    def late(count: int, deadline_s: float, bits: int, *rest: Any) -> RoundTiming | None:
        if bits & ISOLATED:
            worker.asked.append((count, bits))
            return None
        timing: RoundTiming | None = took(count, deadline_s, bits, *rest)
        return timing

    worker.gated_round = late
    gpu_rounds.measure(driver)
    assert driver.result.device.isolated[Role.CANDIDATE] == pytest.approx(TURNS + 10 * CALL)
    assert "one by one" in driver.result.device.overcounted
    missed = [count for count, bits in worker.asked if bits & ISOLATED and bits & GATE]
    assert len(missed) == MAX_STALLED + 1


def test_baselines_are_neither_compared_nor_suspected() -> None:
    driver = trial(verifier := Verifier())
    gpu_rounds.measure(driver)
    assert verifier.verbs["check"] == gpu_rounds.ROUNDS
    assert gpu_rounds.ROUNDS <= verifier.verbs["stage"] <= 2 * gpu_rounds.ROUNDS  # baselines work on the same inputs


def test_the_inputs_of_a_candidate_lie_nowhere_before_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, turns, seconds = trial(verifier := Verifier()), [], gpu_series._seconds

    def seen(arguments: Any, begins: Any) -> float | None:
        if arguments.request:
            turns.append(list(arguments.request["counts"]))
        if arguments.compared:
            assert turns[-1][0] == Role.CANDIDATE.number
        turns[-1].remove(arguments.role.number)  # of everybody the last ones that were drawn, once
        return seconds(arguments, begins)

    monkeypatch.setattr(gpu_series, "_seconds", seen)
    gpu_rounds.measure(driver)
    assert len(turns) == verifier.verbs["stage"] >= gpu_rounds.ROUNDS


@pytest.mark.parametrize("most", [1000, 20])
def test_inputs_are_drawn_while_calls_come_to_the_gate(most: int) -> None:
    """And they are there before anything else is asked for, also where the calls do not come."""
    driver = trial(verifier := Verifier(), most=most)
    worker: Any = driver.workers[Role.CANDIDATE]
    waiting, gated_round = list[list[str]](), worker.gated_round

    def noted(*args: Any, **kwargs: Any) -> Any:
        waiting.append([verb for verb, _ in verifier.posted])
        return gated_round(*args, **kwargs)

    worker.gated_round = noted
    gpu_rounds.measure(driver)
    assert waiting == [["stage"]] * len(waiting) != []
    assert not verifier.posted


def test_what_the_verifier_has_open_is_not_asked_for_again_unless_outputs_lie_elsewhere() -> None:
    for moves, most in ((False, 1000), (True, 1000)):
        driver = trial(verifier := Verifier(), moves=moves, most=most)
        gpu_rounds.measure(driver)
        worker: Any = driver.workers[Role.CANDIDATE]
        rounds = [count for count, bits in worker.asked if bits & NO_COPY and bits & GATE]
        let_go = len(Role)
        assert verifier.verbs["map_memory"] == let_go + 2 + (len(rounds) if moves else len(set(rounds)))


@pytest.mark.parametrize(("says", "most", "gated"), [(1e-3, 1000, True), (1e-6, 1000, True), (1e-3, 40, False)])
def test_no_round_is_short_whatever_a_clock_says(says: float, most: int, gated: bool) -> None:
    """Or the ends of a round, where an early answer hides some work, would be a good part of it."""
    driver = trial(Verifier(), most=most)
    driver.claimed_s[Role.CANDIDATE] = says
    gpu_rounds.measure(driver)
    worker: Any = driver.workers[Role.CANDIDATE]
    counted = [count for count, bits in worker.asked if bits & GATE and count > 1][-gpu_rounds.ROUNDS :]
    assert not gated or min(counted) * CALL >= gpu_series.MIN_S
    assert bool(driver.result.device.overcounted) != gated
    assert driver.result.device.device_only[Role.CANDIDATE] == pytest.approx(CALL if gated else HOST, rel=1e-3)


def test_rounds_on_a_device_that_works_for_the_candidate_prove_no_gain() -> None:
    driver = trial(Verifier(ahead=math.inf), call_s=CALL / 10)
    gpu_rounds.measure(driver)
    usable = with_usable_seconds(driver.result.device)
    assert usable.device_only == pytest.approx(dict.fromkeys(Role, CALL), rel=1e-3)
    assert "was rarely idle" in driver.result.device.overcounted


def test_a_candidate_whose_streams_keep_the_device_awake_is_asked_without_the_gate() -> None:
    driver = trial(Verifier(ahead=gpu_round.MAX_DISCARDED + 1))
    gpu_rounds.measure(driver)
    assert driver.result.device.device_only[Role.CANDIDATE] == pytest.approx(HOST, rel=1e-3)
    assert driver.result.device.overcounted == "the device is rarely idle while its calls wait"
    again = trial(Verifier(ahead=gpu_round.MAX_DISCARDED))
    gpu_rounds.measure(again)
    assert again.result.device.device_only == pytest.approx(dict.fromkeys(Role, CALL), rel=1e-3)
    assert not again.result.device.overcounted


def test_a_baselines_round_does_not_count_where_somebody_else_works_in_it() -> None:
    driver = trial(verifier := Verifier(left=5))
    gpu_rounds.measure(driver)
    assert verifier.left == 0
    usable = with_usable_seconds(driver.result.device)
    assert usable.device_only == pytest.approx(dict.fromkeys(Role, CALL), rel=1e-3)


def test_where_a_baseline_cannot_wait_nobody_does() -> None:
    """Its host would be compared with the candidate's device."""
    driver = trial(Verifier())
    for role in BASELINES:
        driver.workers[role].most = 0  # type: ignore[attr-defined]
    gpu_rounds.measure(driver)
    assert driver.result.device.device_only == pytest.approx(dict.fromkeys(Role, HOST), rel=1e-3)


def test_the_host_is_asked_where_the_worker_does_not_agree_with_the_device() -> None:
    driver = trial(Verifier(), call_s=CALL / 2)
    gpu_rounds.measure(driver)
    seconds = driver.result.device.with_host
    assert [seconds[role] for role in Role] == pytest.approx([HOST] * 3, rel=1e-3)
    agreeing = trial(Verifier())
    gpu_rounds.measure(agreeing)
    assert agreeing.result.device.with_host == {}


def test_a_baseline_without_memory_of_its_own_is_believed() -> None:
    driver = trial(Verifier())
    for role in BASELINES:
        driver.workers[role].control.read_allocations = list  # type: ignore[method-assign]
    gpu_rounds.measure(driver)
    usable = with_usable_seconds(driver.result.device)
    assert usable.device_only == pytest.approx(dict.fromkeys(Role, CALL), rel=1e-3)


def test_what_was_learnt_of_a_program_holds_for_its_next_process() -> None:
    first = trial(Verifier(), most=0)
    gpu_rounds.measure(first)
    second = trial(Verifier(), most=0)
    second.session = first.session
    gpu_rounds.measure(second)
    worker: Any = second.workers[Role.CANDIDATE]
    assert not any(bits & GATE for _, bits in worker.asked)


def standing(events: list[str], says: bool) -> WorkerProcess:
    """A worker's handle whose process and pipes only note what is done with them."""
    note = events.append
    worker_process = object.__new__(WorkerProcess)
    worker_process.__dict__ |= {
        "control": SimpleNamespace(open_gate=lambda: note("open"), end_handoff=lambda: note("called off")),
        "_known": {},
        "_let_go": lambda message: (0.0, Account()),
        "_answers": lambda patience_s: says,
        "_await": lambda byte, deadline_s, seen=None: note(byte.decode()) or 1.0,
        "freeze": lambda: note("stop") or 0.0,
        "_ended": lambda count, elapsed_s, ran_s, before: RoundTiming(count, elapsed_s, [], before),
    }
    return worker_process


def test_a_worker_is_told_what_to_prepare_when_nothing_is_left_of_the_one_before() -> None:
    seen: list[Any] = []
    worker = standing(seen, says=True)
    worker.control = SimpleNamespace(clear=lambda: seen.append("clear"))  # type: ignore[assignment]
    worker._send = seen.append  # type: ignore[method-assign]
    worker.prepare({"path": "x"})
    assert seen[0] == "clear"
    assert [json.loads(line[4:]) for line in seen[1:]] == [{"path": "x"}]


@pytest.mark.parametrize(
    ("says", "done", "events"),
    [
        (True, True, ["Q", "stop", "open", "device", "go on", "D", "stop"]),
        (True, False, ["Q", "stop", "open", "device", "go on", "called off", "D", "stop"]),
        (False, True, ["open", "called off", "Q", "D", "stop"]),
    ],
    ids=["done", "needs its host", "does not come to wait"],
)
def test_a_worker_stands_still_while_its_device_works_on_calls_one_by_one(
    says: bool, done: bool, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(workers.proc, "send", lambda pids, signal: seen.append("go on"))
    worker = standing(seen, says)

    def device() -> bool:
        seen.append("device")
        return done

    timing = worker.gated_round(3, 1.0, GATE | ISOLATED, 1.0, lambda: True, lambda: 0.0, device)
    assert (timing is not None) == (says and done)
    assert seen == events
