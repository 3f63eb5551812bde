"""A series of parent-timed rounds on a GPU: each role in turn, until every role has enough rounds in one mode."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from aisp_mcp.judge.evidence import MIN_NET_SHARE, SecondsByRole
from aisp_mcp.judge.parent.timing.gpu.mode import MIN_CALLS, Mode, Modes
from aisp_mcp.judge.parent.timing.gpu.round import DeviceMemory, GpuRound
from aisp_mcp.judge.protocol.messages import DUMMY, WARM, StageRequest
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import CAN_WAIT
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED

OVERHEAD_ROUNDS = 4  # rounds of a dummy call
ROUND_S = 2.4e-3  # of work on the device: a candidate could hide some 30 µs at its ends, an 80th of that
MIN_S = 1.6e-3  # the minimum, if the calls allow that much: 30 µs are a 50th of it


class BothClocks(NamedTuple):
    """Seconds on the parent's clock and on the worker's own."""

    parent_s: float
    worker_s: float


class SeriesSeconds(NamedTuple):
    """Median seconds per call of each role, on the parent's clock and on the workers' own."""

    parent_s: SecondsByRole
    worker_s: SecondsByRole


@dataclass
class Series:
    """Rounds of each role in turn.

    counts: calls per round of each role; a role whose rounds are too short gets more. gated: with the stream gate, if
    possible. targets: number of rounds of each role. isolated: inputs are written call by call, which adds the same
    time for all roles.

    If a baseline cannot wait at the gate, no role does: otherwise its host time would be compared with the candidate's
    device time. For isolated calls, the same applies to a candidate, because the extra time differs between both kinds.
    """

    memory: DeviceMemory
    counts: dict[Role, int]
    gated: bool
    targets: dict[Role, int]
    isolated: bool = False
    rounds: dict[Role, list[BothClocks]] = field(default_factory=dict)
    overheads: dict[bool, BothClocks] = field(default_factory=dict)  # seconds of a gated round (True) and of any other

    def measure(self) -> SeriesSeconds:
        """Run rounds until each role has enough of them, all in the same modes. Raises ComparisonAborted."""
        self.rounds = {role: [] for role in self.targets}
        while missing := [role for role, number in self.targets.items() if len(self.rounds[role]) < number]:
            if not self._run_turn(missing):
                for rows in self.rounds.values():
                    rows.clear()
        return SeriesSeconds(
            {role: statistics.median(row.parent_s for row in rows) for role, rows in self.rounds.items()},
            {role: statistics.median(row.worker_s for row in rows) for role, rows in self.rounds.items()},
        )

    def _run_turn(self, roles: list[Role]) -> bool:
        """Run one round of each of these roles in random order. False if a mode changed: no earlier round counts."""
        driver = self.memory.driver
        modes = driver.session.modes.decisive
        turn = [self._next_round(role) for role in roles]
        turn = driver.session.random.sample(turn, len(turn))
        for index, gpu_round in enumerate(turn):
            # Where memory is scarce, the check of a candidate's round discards the staged inputs.
            if gpu_round.compared or not index or (driver.session.is_tight and turn[index - 1].compared):
                gpu_round.request = stage_request(turn[index:])
            seconds = self._measure_round(gpu_round)
            if modes != driver.session.modes.decisive:
                return False  # the others of this turn would be measured in another mode
            if seconds is not None:
                self._count(gpu_round, seconds)
        return True

    def _next_round(self, role: Role) -> GpuRound:
        """The role's next round, gated if the rules of a series allow it."""
        driver, modes = self.memory.driver, self.memory.driver.session.modes
        if modes.of(role).gated and not driver.workers[role].control.stats[CAN_WAIT]:
            modes.change(role, modes.of(role).without_gate(wording.NO_GATE))
        mode, count = modes.of(role), self.counts[role]
        gated = self.gated and mode.gated and modes.baseline.gated and (modes.candidate.gated or not self.isolated)
        # Isolated calls take more room in the stream.
        most = mode.max_calls // 2 or 1 if self.isolated else mode.max_calls
        if not gated and not self.isolated:  # the host starts one call while the device works on another
            count = min(max(count, MIN_CALLS), driver.workers[role].control.layout.own.capacity)
        return GpuRound(self.memory, role, modes, gated, min(count, most) if gated else count, self.isolated)

    def _measure_round(self, gpu_round: GpuRound) -> BothClocks | None:
        """Seconds per call of a round; None if it does not count, or if it was too short and the next one gets more
        calls.
        """
        overhead_s = BothClocks(0.0, 0.0) if self.isolated else self._overhead_s(gpu_round.gated)
        seconds = _seconds(gpu_round, overhead_s)
        if not gpu_round.gated or seconds is None or self.isolated:
            return seconds
        if not _is_too_short(gpu_round, seconds.parent_s * gpu_round.count):
            return seconds
        self._recalibrate(gpu_round, seconds.parent_s)
        return None

    def _overhead_s(self, gated: bool) -> BothClocks:
        if gated not in self.overheads:
            self.overheads[gated] = _round_overhead_s(self.memory, gated)
        return self.overheads[gated]

    def _recalibrate(self, gpu_round: GpuRound, call_s: float) -> None:
        """Give the role as many calls as fill a round, and warm up that many."""
        role = gpu_round.role
        self.counts[role] = min(math.ceil(ROUND_S / call_s), gpu_round.capacity)
        gpu_round.mode = replace(gpu_round.mode, call_s=call_s)
        warm_up(GpuRound(self.memory, role, gpu_round.modes, False, self.counts[role]))

    def _count(self, gpu_round: GpuRound, seconds: BothClocks) -> None:
        result = self.memory.driver.result
        self.rounds[gpu_round.role].append(seconds)
        result.checked += gpu_round.checked
        result.device.candidate_calls += gpu_round.count if gpu_round.compared else 0


def warm_up(gpu_round: GpuRound) -> None:
    """Run rounds that do not count. If all outputs stay alive, they need new memory, and this shows whether they can
    have it.

    A baseline also runs a dummy round: a kernel that has never run must be loaded first, which is impossible in a
    stream that waits at the gate.
    """
    worker, driver = gpu_round.worker, gpu_round.driver
    if not gpu_round.compared:
        driver.guarded(gpu_round.role, lambda: worker.run_round(1, gpu_round.deadline_s, WARM | DUMMY))
    if gpu_round.mode.copies:
        return
    if not worker.control.read_allocations():
        gpu_round.mode = gpu_round.mode.with_copies(wording.NO_ROOM_FOR_INPUTS)
        return
    driver.guarded(gpu_round.role, gpu_round.announce)
    gpu_round.refused()


def stage_request(turn: Sequence[GpuRound]) -> StageRequest:
    """Request to draw the inputs of these rounds, the same for all of them, and to poison their outputs.

    The memory of a candidate's outputs is unknown before its round, so it is left out of a turn that another role
    begins.
    """
    driver, first = turn[0].driver, turn[0]
    turn = [gpu_round for gpu_round in turn if first.compared or not gpu_round.compared]
    counts = {driver.number(gpu_round.role): gpu_round.count for gpu_round in turn}
    return {"counts": counts, "seed": driver.session.new_seed(), "sample": first.sample()}


def _round_overhead_s(memory: DeviceMemory, gated: bool) -> BothClocks:
    """Overhead of a baseline's round beyond its dummy call, a kernel that waits, in seconds."""
    driver = memory.driver
    overheads: list[BothClocks] = []
    for turn in range(3 * OVERHEAD_ROUNDS):
        role = BASELINES[turn % 2]
        modes = Modes(baseline=Mode(copies=not driver.workers[role].control.read_allocations()))
        gpu_round = GpuRound(memory, role, modes, gated, 1)
        driver.guarded(role, gpu_round.renew_memory)
        driver.wait_idle(driver.session.probe_s())
        timing = driver.guarded(role, partial(gpu_round.run, DUMMY))
        if timing is not None and not gpu_round.refused() and not driver.is_busy(gpu_round.probe_s):
            inside_s = timing.durations_ns[0] / 1e9
            overheads.append(BothClocks(timing.elapsed_s - inside_s, gpu_round.elapsed_worker_s - inside_s))
        if len(overheads) == OVERHEAD_ROUNDS:
            break
    return BothClocks(
        min((row.parent_s for row in overheads), default=0.0), min((row.worker_s for row in overheads), default=0.0)
    )


def _seconds(gpu_round: GpuRound, overhead_s: BothClocks) -> BothClocks | None:
    """Seconds per call of one round; None if it does not count, or is not possible in that mode. Raises
    ComparisonAborted.
    """
    driver, count = gpu_round.driver, gpu_round.count
    timing = driver.guarded(gpu_round.role, gpu_round.run_gated if gpu_round.gated else gpu_round.run_ungated)
    if timing is None:
        return None
    if gpu_round.compared and not gpu_round.outputs_right():
        return None
    if not gpu_round.compared and driver.is_busy(gpu_round.probe_s) and gpu_round.mode.discarded <= MAX_DISCARDED:
        gpu_round.mode = gpu_round.mode.on_busy_device()  # it contained another process's work
        return None
    if gpu_round.isolated:
        fields = {"side": gpu_round.role, "gated": gpu_round.gated, "seconds": gpu_round.seconds}
        driver.session.log.append("isolated", replicate=driver.result.index, **fields)
        return BothClocks(statistics.median(gpu_round.seconds), 0.0)
    clocks = zip((timing.elapsed_s, gpu_round.elapsed_worker_s), overhead_s, strict=True)
    parent_s, worker_s = (max(whole - overhead, MIN_NET_SHARE * whole) / count for whole, overhead in clocks)
    return BothClocks(parent_s, worker_s)


def _is_too_short(gpu_round: GpuRound, net_s: float) -> bool:
    """Return True if the ends are too large a part of the round and it can have more calls."""
    if net_s >= MIN_S or gpu_round.count >= gpu_round.capacity:
        return False
    if gpu_round.count >= gpu_round.mode.max_calls and gpu_round.compared:
        gpu_round.mode = gpu_round.mode.without_gate(wording.FEW_CALLS_FIT)
    return gpu_round.count < gpu_round.mode.max_calls or gpu_round.compared
