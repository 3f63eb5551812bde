"""Rounds of measured processes, with processes whose times are known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aisp_mcp.gate.workloads import rounds
from aisp_mcp.judge.presets import PRESETS, Role


class Known:
    """A process whose calls take so many seconds; each round costs what a pipe and cold caches do. first_s: what the
    first call takes in addition; held_up: the round, from 0, during which something else has its core for 50 ms.
    """

    def __init__(self, seconds: float, units: bool, first_s: float = 0.0, held_up: int = -1) -> None:
        self.seconds, self.units, self.problem, self.calls = seconds, units, "", list[int]()
        self.first_s, self.held_up = first_s, held_up

    def until_ready(self, _: str) -> dict[str, Any]:
        return {"seconds": self.seconds + self.first_s, "own_clock": False, "digest": None, "units": self.units}

    def round(self, calls: int, own_clock: bool) -> float:
        self.calls.append(calls)
        return 4e-4 + calls * self.seconds + 0.05 * (len(self.calls) == self.held_up + 1)

    def finish(self, _: str) -> None: ...


@pytest.mark.parametrize(
    ("base_s", "head_s", "units", "calls"),
    [
        pytest.param(55e-3, 9e-4, False, 10, id="a call of the base fills a round, of the head not"),
        pytest.param(1e-4, 1e-6, False, 9000, id="both short"),
        pytest.param(12e-3, 9e-3, False, 1, id="about as fast"),
        pytest.param(12e-3, 1e-4, True, 1, id="one by one"),
    ],
)
def test_a_round_of_a_much_faster_head_has_more_calls(base_s: float, head_s: float, units: bool, calls: int) -> None:
    processes: dict[Role, Any] = {role: Known(head_s if role is Role.CANDIDATE else base_s, units) for role in Role}
    measured = rounds.measure(processes, "known", PRESETS["quick"])
    assert isinstance(measured, rounds.BenchmarkReplicate)
    head = processes[Role.CANDIDATE]
    assert head.calls[-1] >= calls
    assert (head.calls[-1] == processes[Role.BASELINE].calls[-1]) == (calls == 1)
    if not units:
        assert measured.log_ratio == pytest.approx(math.log(base_s / head_s), abs=0.06)


def test_a_round_of_calls_with_setups_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forking(Known):
        now = 0.0

        def round(self, calls: int, own_clock: bool) -> float:
            Forking.now += calls * 7e-3
            return super().round(calls, own_clock)

    monkeypatch.setattr(rounds, "time", type("", (), {"perf_counter": staticmethod(lambda: Forking.now)}))
    processes: dict[Role, Any] = {role: Forking(2e-4, True) for role in Role}
    assert isinstance(rounds.measure(processes, "known", PRESETS["quick"]), rounds.BenchmarkReplicate)
    assert all(1 < process.calls[-1] <= rounds.UNITS_S / 7e-3 for process in processes.values())


@pytest.mark.parametrize("first_s", [0.0, 0.06, 2.5])
@pytest.mark.parametrize("held_up", [0, 1])
def test_neither_a_slow_first_call_nor_a_wait_for_a_core_shortens_the_rounds(first_s: float, held_up: int) -> None:
    processes: dict[Role, Any] = {role: Known(2e-4, False, first_s, held_up) for role in Role}
    assert isinstance(rounds.measure(processes, "known", PRESETS["quick"]), rounds.BenchmarkReplicate)
    for process in processes.values():
        assert process.calls[-1] * process.seconds >= rounds.ROUND_S / 2
        assert process.calls.count(process.calls[-1]) >= 2 * PRESETS["quick"].palindromes
