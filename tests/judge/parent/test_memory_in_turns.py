"""Rounds of processes that take turns with the memory of a GPU: a model of them is asked, as in test_gpu_rounds.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from gpu_model import Process, Verifier, trial

from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.gpu import schedule
from aisp_mcp.judge.parent.timing.gpu.round import GpuRound
from aisp_mcp.judge.protocol.messages import TOUCH
from aisp_mcp.judge.protocol.roles import Role


def process_of(driver: Driver, role: Role) -> Process:
    worker = driver.workers[role]
    assert isinstance(worker, Process)
    return worker


@pytest.mark.parametrize("most", [1000, 0], ids=["behind the gate", "without it"])
def test_memory_that_a_baseline_returned_costs_its_round_nothing(most: int) -> None:
    driver = trial(Verifier(), tight=True, most=most)
    schedule.measure(driver)
    seconds = driver.result.device.with_host or driver.result.device.device_only
    assert seconds[Role.CANDIDATE] == pytest.approx(seconds[Role.BASELINE])


def test_no_process_returns_memory_that_the_verifier_has_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = trial(verifier := Verifier(), tight=True)
    mapped, renewed = set[int](), list[bool]()
    ask, run_round = verifier.ask, Process.run_round

    def noted(verb: str, **request: object) -> dict[str, object]:
        if verb == "map_memory":
            (mapped.add if request["allocations"] else mapped.discard)(int(str(request["worker_id"])))
        return ask(verb, **request)

    def renewing(self: Process, count: int, deadline_s: float, bits: int) -> object:
        [number] = [driver.number(role) for role in Role if driver.workers[role] is self]
        if bits & TOUCH:
            renewed.append(number in mapped)
        return run_round(self, count, deadline_s, bits)

    monkeypatch.setattr(verifier, "ask", noted)
    monkeypatch.setattr(Process, "run_round", renewing)
    schedule.measure(driver)
    assert len(renewed) >= 3 * len(Role)
    assert not any(renewed)


def test_processes_keep_their_memory_where_there_is_room_for_all() -> None:
    driver = trial(Verifier())
    schedule.measure(driver)
    assert not any(bits & TOUCH for role in Role for _, bits in process_of(driver, role).asked)


def test_inputs_are_drawn_once_for_a_baseline_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = trial(verifier := Verifier(), tight=True)
    order, sample = [Role.BASELINE_REPEAT, Role.BASELINE, Role.CANDIDATE], driver.session.random.sample

    def in_order(chosen: Sequence[Any], count: int) -> list[Any]:
        if isinstance(chosen[0], GpuRound):
            return sorted(chosen, key=lambda gpu_round: order.index(gpu_round.role))
        return sample(chosen, count)

    monkeypatch.setattr(driver.session.random, "sample", in_order)
    schedule.measure(driver)
    assert verifier.verbs["stage"] == 2 * schedule.ROUNDS
