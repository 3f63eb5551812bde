"""Parent-timed rounds on a GPU: seconds per call of device work, or of device and host, without round overhead.

A round on a GPU takes longer than its calls because of the host, the flushes between calls and the copies of inputs and
outputs. All of it happens in the worker's own process, which could leave some of it out. These rounds contain none of
it. The worker lays all calls of a round into its stream, where they wait at a gate: a word of memory that the parent
holds. Only then the verifier writes their inputs, which no worker has seen, all at once, and empties the L2. The parent
reads its clock and opens the gate. Behind the last call the device itself says that it has ended; the verifier waits
for that or for the answer, reads the clock when its own smallest kernel has had its turn, and on the same turn takes
the outputs from where they lie (ipc/cuda_ipc.py) to compare them. Only the work and the pauses between calls remain.

A candidate that synchronizes before all launches are enqueued, or has more kernels than its queue holds, is timed
ungated, so host time counts as well. So are all roles where the worker's clock disagrees, because it counts some of
the host's time: its ratio must then lie between these two. A program whose outputs or inputs cannot lie in memory of
its own (one buffer used again and again, a graph captured on its inputs) gets rounds with copies, and pays for them.
Rounds on a device that does not stand still before them do not count. Isolated calls (verification/handoff_gpu.py) show
the cost of a call that shares nothing with others, and so the gain of work on several at once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.evidence import MIN_NET_SHARE, SecondsByRole
from aisp_mcp.judge.parent.session import MIN_CALLS, MeasurementMode
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.gpu_round import MAX_DISCARDED, DeviceMemory, GpuRound
from aisp_mcp.judge.presets import BASELINES, GPU_ROUNDS, Role, round_count
from aisp_mcp.judge.protocol.messages import StageRequest
from aisp_mcp.judge.protocol.shared_memory import CAN_WAIT
from aisp_mcp.judge.protocol.words import DUMMY, WARM
from aisp_mcp.judge.verdict.estimators import MIN_GAIN
from aisp_mcp.judge.verifier.handoff import handoff_gpu

ROUNDS = GPU_ROUNDS  # median of 3: robust to one outlier
EACH = dict.fromkeys(Role, ROUNDS)
OVERHEAD_ROUNDS = 4  # rounds of a dummy call
DUMMY_CALLS = 8  # of a round of isolated dummy calls
CONFIRMED = 0.02  # largest difference between the worker's ratio and that of the device alone
ROUND_S = 2.4e-3  # of work on the device: a candidate could hide some 30 µs at its ends, an 80th of that
MIN_S = 1.6e-3  # of it, where the calls allow so much: 30 µs are a 50th of that


def measure(driver: Driver) -> None:
    """Leave the seconds per call of each role in the replicate's result. Raises ComparisonAborted."""
    session, found, memory = driver.session, driver.result.device, DeviceMemory(driver)
    counts = {role: _calls(driver, role) for role in Role}
    for mode in session.modes.values():
        mode.discarded = mode.stalled = 0
        if session.on_host and mode.gated:
            mode.disable_gate("its inputs lie in host memory")
    try:
        for role, count in counts.items():
            if role is not Role.CANDIDATE:  # or isolated calls with the host would be the first to need so much memory
                own = driver.workers[role].control.layout.own
                count = min(max(count, handoff_gpu.MIN_UNGATED), own.capacity)
            _warm_up(GpuRound(memory, role, session.mode(role), False, count))
        first = _many_and_isolated(memory, counts, True)
        found.device_only, found.isolated, _ = first
        found.gated = _all_gated(driver)
        if not _confirmed(driver):  # where a baseline cannot wait at the gate the host has counted already
            second = _many_and_isolated(memory, counts, False) if session.modes[False].gated else first
            found.with_host, found.isolated_with_host, found.worker_with_host = second
    finally:
        with suppress(BenchmarkError):  # or it would replace the exception that ended the rounds
            for role in Role:
                session.map_memory(driver.number(role), {"allocations": [], "addresses": [], "apart": False})
    mode = session.mode(Role.CANDIDATE)
    if mode.discarded > MAX_DISCARDED:  # work that was done beforehand is in none of these rounds: they prove no gain
        mode.reasons.append("the device hardly stood still")
        middle = math.sqrt(math.prod(found.device_only[role] for role in BASELINES))
        found.device_only[Role.CANDIDATE], found.with_host = middle, {}
    found.copying, found.overcounted = mode.copies, "; ".join(dict.fromkeys(mode.reasons))
    modes = {str(candidate): vars(one) for candidate, one in session.modes.items()}
    session.log.append("gate", replicate=driver.result.index, modes=modes, **found.log_fields())


def _calls(driver: Driver, role: Role) -> int:
    """Number of calls that keep the device busy for ROUND_S, by earlier replicates or by the worker's own clock."""
    call_s = driver.session.mode(role).call_s or driver.claimed_s[role]
    return round_count(call_s, ROUND_S, driver.workers[role].control.layout.own.capacity, driver.session.random)


def _warm_up(one: GpuRound) -> None:
    """Rounds that do not count. Outputs that all stay alive need new memory, and it is seen whether they can. A
    baseline has a dummy round as well: a kernel that has never run is loaded first, which no stream at the gate allows.
    """
    if not one.compared:
        one.driver.guarded(one.role, lambda: one.worker.run_round(1, one.deadline_s, WARM | DUMMY))
    if one.mode.copies:
        return
    if not one.worker.control.read_allocations():
        one.mode.use_copies("there is no memory for inputs of its own")
        return
    one.driver.guarded(one.role, one.announce)
    one.refused()


def _confirmed(driver: Driver) -> bool:
    """True if the workers' clocks say the same as the device alone, so that no host time is in their ratio."""
    claimed, device_only = _worker_s(driver), driver.result.device.device_only
    if min(claimed.values()) <= 0:
        return False
    both = [
        math.log(s[Role.BASELINE] * s[Role.BASELINE_REPEAT]) / 2 - math.log(s[Role.CANDIDATE])
        for s in (claimed, device_only)
    ]
    return abs(both[0] - both[1]) <= CONFIRMED


def _worker_s(driver: Driver) -> SecondsByRole:
    """Seconds per call that each worker's own clock says, in the timed rounds."""
    rounds = driver.result.rounds
    return {role: statistics.median(one.median_s for one in rounds if one.role is role) for role in Role}


def _many_and_isolated(
    memory: DeviceMemory, counts: dict[Role, int], gated: bool
) -> tuple[SecondsByRole, SecondsByRole, SecondsByRole]:
    """Seconds per call of each role: back to back, isolated where there is a gain, and by the workers' clocks."""
    driver, session = memory.driver, memory.driver.session
    while True:
        many, claimed = _series(memory, counts, gated, EACH)
        modes = _modes(driver)
        wanted = session.options.protections.isolated_calls and not session.on_host
        gains = wanted and many[Role.CANDIDATE] < MIN_GAIN * max(many.values())
        isolated = _isolated(memory, counts, many, gated) if gains else {}
        if modes == _modes(driver):
            break
    if session.modes[False].copies:  # these would make a baseline look slow; its own clock can be trusted
        for role in BASELINES:
            copies = many[role] - _worker_s(driver)[role]
            many[role] -= copies
            isolated |= {role: isolated[role] - copies} if isolated else {}
    return many, isolated, claimed


def _isolated(memory: DeviceMemory, counts: dict[Role, int], many: SecondsByRole, gated: bool) -> SecondsByRole:
    """Seconds of each role's isolated call; empty where the driver has no stream memory operations."""
    driver = memory.driver
    if max(counts.values()) == 1:
        return dict(many)
    # A candidate's word about its driver counts no more than a baseline's.
    if not driver.workers[Role.BASELINE].control.stats[CAN_WAIT]:
        return {}
    gated = gated and _all_gated(driver)
    few = _few(driver, counts, many, gated)
    if gated:
        return _series(memory, few, True, EACH, isolated=True)[0]
    found, _ = _series(memory, few, False, EACH | dict.fromkeys(BASELINES, 1), isolated=True)
    return found | {role: max(found[role], many[role] + _handoff_s(memory, role)) for role in BASELINES}


def _handoff_s(memory: DeviceMemory, role: Role) -> float:
    """Seconds that the handoff of inputs adds to an isolated call with the host, by a baseline's dummy calls.

    No call costs less: the cost that its own calls show scatters by as much as its host does.
    """
    worker = memory.driver.workers[role]
    mode = MeasurementMode(copies=not worker.control.read_allocations())
    for _ in range(2):  # once more where its memory cannot be mapped
        one = GpuRound(memory, role, mode, False, min(DUMMY_CALLS, worker.control.layout.own.capacity), True)
        one.request = _stage_request([one])
        timing = memory.driver.guarded(role, partial(one.run_ungated, DUMMY))
        if timing is not None:
            rows = zip(one.seconds, timing.durations_ns, strict=True)
            return float(statistics.median(seconds - inside / 1e9 for seconds, inside in rows))
    return 0.0


def _few(driver: Driver, counts: dict[Role, int], many: SecondsByRole, gated: bool) -> dict[Role, int]:
    """Numbers of isolated calls of a round: no more than are known to fit into a stream, and behind the gate the same
    for all roles. Without it a baseline has fewer, since the median of all replicates counts.
    """
    draw = driver.session.random
    if gated:
        least = min(max(round(handoff_gpu.ROUND_S / max(many.values())), 1), handoff_gpu.CALLS)
        few = min(draw.randint(least, least + 1), *counts.values())  # no code knows which is its last
        return dict.fromkeys(Role, few)
    most = dict.fromkeys(BASELINES, handoff_gpu.CALLS) | {Role.CANDIDATE: draw.randint(*handoff_gpu.UNGATED_CALLS)}
    capacity = driver.workers[Role.CANDIDATE].control.layout.own.capacity
    return {role: min(number, max(counts[role], handoff_gpu.MIN_UNGATED), capacity) for role, number in most.items()}


def _all_gated(driver: Driver) -> bool:
    return all(mode.gated for mode in driver.session.modes.values())


def _modes(driver: Driver) -> list[tuple[bool, bool]]:
    """Current modes of both programs; a change makes earlier rounds useless."""
    return [(mode.copies, mode.gated) for mode in driver.session.modes.values()]


def _series(
    memory: DeviceMemory, counts: dict[Role, int], gated: bool, wanted: dict[Role, int], isolated: bool = False
) -> tuple[SecondsByRole, SecondsByRole]:
    """Median seconds per call of each role over some rounds in turn, on the parent's clock and on the workers' own.

    wanted: number of rounds of each role. gated: where that is possible. isolated: inputs are handed over call by call,
    which adds the same time for all roles.

    Where a baseline cannot wait at the gate no role does: its host would be compared with the candidate's device. For
    isolated calls the same holds of a candidate: the handoff costs differ between both kinds.
    """
    driver = memory.driver
    rounds = dict[Role, list[tuple[float, float]]]((role, []) for role in wanted)
    overhead = cache(partial(_round_overhead_s, memory))
    while short := [role for role, number in wanted.items() if len(rounds[role]) < number]:
        before, turn = _modes(driver), [_next_round(memory, role, counts[role], gated, isolated) for role in short]
        turn = driver.session.random.sample(turn, len(turn))
        for place, one in enumerate(turn):
            role, mode = one.role, one.mode
            if one.compared or not place:
                one.request = _stage_request(turn[place:])
            seconds = _seconds(one, (0.0, 0.0) if isolated else overhead(one.gated))
            if one.gated and seconds is not None and not isolated and _too_short(one, seconds * one.count):
                counts[role], mode.call_s = min(math.ceil(ROUND_S / seconds), one.capacity), seconds
                seconds = None
                _warm_up(GpuRound(memory, role, mode, False, counts[role]))
            if before != _modes(driver):
                for rows in rounds.values():
                    rows.clear()
                break  # the others of this turn would be measured in another mode, too
            if seconds is not None:
                rounds[role].append((seconds, one.worker_s))
                driver.result.checked += one.checked
                driver.result.device.candidate_calls += one.count if one.compared else 0
    parent, claimed = (
        {role: statistics.median(row[at] for row in rows) for role, rows in rounds.items()} for at in (0, 1)
    )
    return parent, claimed


def _next_round(memory: DeviceMemory, role: Role, count: int, gated: bool, isolated: bool) -> GpuRound:
    """The role's next round in a series, gated where _series() allows it."""
    driver, modes = memory.driver, memory.driver.session.modes
    mode = driver.session.mode(role)
    if mode.gated and not driver.workers[role].control.stats[CAN_WAIT]:
        mode.disable_gate("the driver knows no gate")
    kind = gated and mode.gated and modes[False].gated and (modes[True].gated or not isolated)
    most = mode.max_calls // 2 or 1 if isolated else mode.max_calls  # isolated calls take more room in the stream
    if not kind and not isolated:  # the host begins one call while the device works on another
        count = min(max(count, MIN_CALLS), driver.workers[role].control.layout.own.capacity)
    return GpuRound(memory, role, mode, kind, min(count, most) if kind else count, isolated)


def _stage_request(turn: Sequence[GpuRound]) -> StageRequest:
    """Request to draw the inputs of these rounds, the same for all of them, and to poison their outputs.

    A candidate's outputs lie in nobody's memory before: in a turn that another role begins, its round is left out.
    """
    driver, first = turn[0].driver, turn[0]
    turn = [one for one in turn if first.compared or not one.compared]
    counts = {driver.number(one.role): one.count for one in turn}
    return {"counts": counts, "seed": driver.session.new_seed(), "sample": first.sample()}


def _round_overhead_s(memory: DeviceMemory, gated: bool) -> tuple[float, float]:
    """Seconds of a baseline's round beyond its dummy call, a kernel that waits: on the parent's clock, and its own."""
    driver = memory.driver
    found: list[tuple[float, float]] = []
    for turn in range(3 * OVERHEAD_ROUNDS):
        role = BASELINES[turn % 2]
        mode = MeasurementMode(copies=not driver.workers[role].control.read_allocations())
        one = GpuRound(memory, role, mode, gated, 1)
        driver.wait_idle(driver.session.probe_s())
        timing = driver.guarded(role, partial(one.run, DUMMY))
        if timing is not None and not one.refused() and not driver.is_busy(one.probe_s):
            inside_s = timing.durations_ns[0] / 1e9
            found.append((timing.elapsed_s - inside_s, one.elapsed_worker_s - inside_s))
        if len(found) == OVERHEAD_ROUNDS:
            break
    return min(found, default=(0.0, 0.0))[0], min((own for _, own in found), default=0.0)


def _seconds(one: GpuRound, overhead_s: tuple[float, float]) -> float | None:
    """Seconds per call of one round; None where it does not count, or not in that mode. Raises ComparisonAborted."""
    driver, mode, count = one.driver, one.mode, one.count
    timing = driver.guarded(one.role, one.run_gated if one.gated else one.run_ungated)
    if timing is None:
        return None
    if one.compared and not one.outputs_right():
        return None
    if not one.compared and driver.is_busy(one.probe_s) and mode.discarded <= MAX_DISCARDED:
        mode.discarded += 1  # another process's work was in it
        return None
    if one.isolated:
        found = {"side": one.role, "gated": one.gated, "seconds": one.seconds}
        driver.session.log.append("isolated", replicate=driver.result.index, **found)
        return statistics.median(one.seconds)
    took = zip((timing.elapsed_s, one.elapsed_worker_s), overhead_s, strict=True)
    seconds, one.worker_s = (max(whole - begin, MIN_NET_SHARE * whole) / count for whole, begin in took)
    return seconds


def _too_short(one: GpuRound, net_s: float) -> bool:
    """True for a round whose ends are too large a part of it, if it can have more calls."""
    if net_s >= MIN_S or one.count >= one.capacity:
        return False
    if one.count >= one.mode.max_calls and one.compared:
        one.mode.disable_gate("too few of its calls fit into its stream")
    return one.count < one.mode.max_calls or one.compared
