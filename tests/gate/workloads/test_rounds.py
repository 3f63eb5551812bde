"""Rounds of measured processes, with processes whose times are known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aisp_mcp.gate.workloads import rounds
from aisp_mcp.judge.presets import PRESETS, Role


class Known:
    """A process whose calls take so many seconds; each round costs what a pipe and cold caches do."""

    def __init__(self, seconds: float, units: bool) -> None:
        self.seconds, self.units, self.problem, self.calls = seconds, units, "", list[int]()

    def until_ready(self, _: str) -> dict[str, Any]:
        return {"seconds": self.seconds, "own_clock": False, "digest": None, "units": self.units}

    def round(self, calls: int, own_clock: bool) -> float:
        self.calls.append(calls)
        return 4e-4 + calls * self.seconds

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
