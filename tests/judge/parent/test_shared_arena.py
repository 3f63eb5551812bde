"""Rounds of workers that use one arena in turn: none sees the inputs or outputs of another."""

from __future__ import annotations

import random
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from aisp_mcp.judge.evidence import Account, RoundTiming
from aisp_mcp.judge.options import ALL
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun
from aisp_mcp.judge.presets import PRESETS
from aisp_mcp.judge.protocol.draws.rng import MODES
from aisp_mcp.judge.protocol.roles import Role

BASELINE, CANDIDATE = Role.BASELINE.number, Role.CANDIDATE.number
HALF = [(1, Role.BASELINE), (2, Role.CANDIDATE)]


class Recorded:
    """A driver and its strategy whose requests and rounds are recorded."""

    def __init__(self, is_tight: bool) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.session: Any = SimpleNamespace(
            is_tight=is_tight,
            replicates_at_once=1 if is_tight else 2,
            options=SimpleNamespace(device="cuda", preset=PRESETS["quick"], protections=ALL),
            opened={"layout": {"capacity": 1}, "goal": "speed", "converts": False},
            adversarial=MODES[1:],
            random=random.Random(1),
            phase=lambda name: nullcontext(),
            new_seed=lambda: 7,
            ask=self._ask,
            check=self._check,
            log=SimpleNamespace(append=lambda *_, **__: None),
        )
        self.driver = Driver(self.session, 0)
        for role in Role:
            self.driver.workers[role] = self._worker(role)
            self.driver.call_s[role] = self.driver.claimed_s[role] = 1.0

    def _ask(self, verb: str, counts: dict[int, int], **request: Any) -> dict[str, Any]:
        self.events.append((verb, sorted(counts)))
        return {}

    def _check(self, worker: int, *_: Any) -> dict[str, Any]:
        self.events.append(("check", [worker]))
        return {"failure": None, "code": None, "checked": 1, "ratio": 0.0}

    def _worker(self, role: Role) -> Any:
        def run_round(*_: Any) -> RoundTiming:
            self.events.append(("run", [role.number]))
            return RoundTiming(1, 0.1, [1], Account())

        return SimpleNamespace(run_round=run_round, refuse_work_outside=lambda: None, name=role.label)

    def run_round(self, driver: Driver, role: Role, count: int) -> RoundTiming:
        return driver.run_round(role, count)

    def dummy_round(self, *_: Any) -> None:
        """Not needed on a GPU."""


@pytest.mark.parametrize("is_tight", [True, False])
def test_a_round_is_filled_just_before_it_and_checked_before_the_next(is_tight: bool) -> None:
    recorded = Recorded(is_tight)
    strategy: Any = recorded
    ReplicateRun(recorded.driver, strategy)._half_palindrome(HALF, hidden=99, comparisons=1)
    turns = [[("fill", [number]), ("run", [number]), ("check", [number])] for number in (BASELINE, CANDIDATE)]
    apart = [("fill", [BASELINE, CANDIDATE])]
    apart += [(verb, [number]) for verb in ("run", "check") for number in (BASELINE, CANDIDATE)]
    assert recorded.events == ([*turns[0], *turns[1]] if is_tight else apart)


def test_each_turn_writes_the_same_inputs() -> None:
    recorded, requests = Recorded(is_tight=True), []
    recorded.session.ask = lambda verb, counts, **request: requests.append(request) or {}
    recorded.driver.fill(dict.fromkeys(Role, 1), sample=[0])
    assert not requests
    for role in Role:
        recorded.driver.run_round(role, 1)
    assert requests[0]["seed"] == 7
    assert requests == [requests[0]] * 3
