"""Steps of a comparison on a CPU: isolated calls, dummy rounds, and the accounting of output copies."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

from aisp_mcp.judge.evidence import Overhead, RoundCost, RoundTiming
from aisp_mcp.judge.parent.processes.placement import EXTENSIONS, INDUCTOR
from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.copy_cost import account_for_copies
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.first_use import note_imports
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.presets import Preset, round_count
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.protocol.words import DUMMY, ISOLATED
from aisp_mcp.judge.verdict.overhead import fit_overhead

ROUND_S = 1e-3
ROUNDS, MIN_CALLS = 5, 3  # of isolated calls, per role; their median counts
# Calls of each such round of the candidate that are compared, at random. A candidate that fakes half of them in half of
# the rounds is found in all but one of some thousand replicates.
COMPARED = 4
SINGLE_ROUNDS = 4  # rounds of one call per role, where the verifier has no core of its own; the shortest counts


class CpuStrategy(Strategy):
    """Rounds of a CPU. Inputs and outputs lie in shared host memory."""

    pilot_rounds = 2
    caches = (INDUCTOR, EXTENSIONS)
    round_bytes = 48 << 20

    def adapt(self, preset: Preset) -> Preset:
        return preset

    def note_imports(self, session: Session) -> None:
        if session.opened["goal"] == "memory":
            note_imports(session)

    def run_round(self, driver: Driver, role: Role, count: int, bits: int = 0) -> RoundTiming:
        return driver.run_round(role, count, bits)

    def dummy_round(self, driver: Driver, role: Role, count: int) -> RoundCost | None:
        return driver.run_round(role, count, DUMMY).cost

    def measure_isolated_calls(self, driver: Driver) -> None:
        if verifier_has_a_core(driver):
            driver.result.isolated, driver.result.handoff_s = isolated_calls(driver)
        else:
            driver.result.isolated = rounds_of_one_call(driver)
        found = {"seconds": driver.result.isolated, "handoff_s": driver.result.handoff_s}
        driver.session.log.append("isolated", replicate=driver.result.index, **found)

    def finish(self, driver: Driver, singles: Sequence[RoundCost], dummies: Sequence[RoundCost]) -> Overhead:
        full = [one.timing.cost for one in driver.result.rounds if one.role is not Role.CANDIDATE]
        return account_for_copies(driver, fit_overhead(singles, dummies, full))


def verifier_has_a_core(driver: Driver) -> bool:
    """True if the verifier, which runs on the cores of this process, shares none with the workers."""
    return not os.sched_getaffinity(0) & driver.session.placement.cpus


def isolated_calls(driver: Driver) -> tuple[dict[Role, list[float]], float]:
    """Median seconds of an isolated call in each of some rounds, per role, and the handoff's cost per call.

    The cost is what the baselines' calls take longer than by their own clocks: handing over inputs, storing outputs.
    It is part of every role's isolated calls. Raises ComparisonAborted.
    """
    costs = list[float]()
    found = dict[Role, list[float]]((role, []) for role in Role)
    session = driver.session
    for _ in range(ROUNDS):
        counts = {role: _count(driver, role) for role in Role}
        numbered = {driver.number(role): count for role, count in counts.items()}
        session.stage({"counts": numbered, "seed": session.new_seed(), "sample": []})
        for role in session.random.sample(list(Role), len(Role)):
            seconds, timing = _round(driver, role, counts[role])
            found[role].append(statistics.median(seconds))
            if role is not Role.CANDIDATE:
                costs += (one - own_ns / 1e9 for one, own_ns in zip(seconds, timing.durations_ns, strict=True))
        _verify(driver, counts)
    return found, max(statistics.median(costs), 0.0)


def _verify(driver: Driver, counts: dict[Role, int]) -> None:
    """Compare when all have run: outputs may be compared with a baseline's."""
    for role, count in counts.items():
        driver.verify(role, driver.sample(count, COMPARED) if role is Role.CANDIDATE else [])


def _count(driver: Driver, role: Role) -> int:
    """Number of calls that fill ROUND_S, and no fewer than MIN_CALLS."""
    capacity = driver.workers[role].control.layout.own.capacity
    least = min(MIN_CALLS, capacity)
    return max(round_count(driver.call_s[role], ROUND_S, capacity, driver.session.random), least)


def _round(driver: Driver, role: Role, count: int) -> tuple[list[float], RoundTiming]:
    """One round, and the seconds of each call on the verifier's clock. Raises ComparisonAborted."""
    worker, verifier, deadline_s = driver.workers[role], driver.session.verifier, driver.deadline_s(role, count)
    worker.control.begin_handoff()
    with driver.session.phase("measure"):
        verifier.post("handoff_cpu", side=driver.number(role), deadline_s=deadline_s)
        try:
            timing = driver.guarded(role, lambda: worker.run_round(count, deadline_s, ISOLATED))
        finally:
            worker.control.end_handoff()  # it says no more
            answer: dict[str, Any] = verifier.collect("handoff_cpu")
    return answer["seconds"], timing


def rounds_of_one_call(driver: Driver) -> dict[Role, list[float]]:
    """Seconds of each, per role. Raises ComparisonAborted."""
    found = dict[Role, list[float]]((role, []) for role in Role)
    for _ in range(SINGLE_ROUNDS):
        driver.fill(dict.fromkeys(Role, 1))
        for role in driver.session.random.sample(list(Role), len(Role)):
            found[role].append(driver.run_round(role, 1).elapsed_s)
        for role in Role:
            driver.verify(role, [0] if role is Role.CANDIDATE else [])
    return found
