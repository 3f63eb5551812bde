"""Parent-timed rounds on a GPU: seconds per call of device work, or of device and host, without round overhead.

A round on a GPU takes longer than its calls because of the host, the flushes between calls and the copies of inputs and
outputs. All of that happens in the worker's process, which could skip some of it. The rounds of this module include
none of it. The worker enqueues all calls of a round in its stream, where they wait for a gate: a word of memory that
the parent controls. Only then does the verifier write their inputs, which no worker has seen, all at once, and flush
the L2. The parent reads its clock and opens the gate. After the last call, the device itself signals the end. The
verifier waits for that signal or for the answer and reads the clock when its own smallest kernel has had its turn. In
the same turn it reads the outputs from the worker's memory (protocol/cuda_ipc.py) to compare them. Only the work and
the pauses between calls remain.

A candidate that synchronizes before all launches are enqueued, or has more kernels than its queue holds, is timed
ungated, so host time counts as well. So are all roles if the worker's clock disagrees because it includes host time:
its ratio must then lie between these two. A program that needs its inputs at one address (for a graph that it has
captured, or captures for each address) gets rounds with copies, which count as part of its time. A program that uses
one buffer for its outputs gets rounds in which these are copied. What such copies take in a baseline's rounds is
subtracted: isolated calls, whose outputs are read one by one, limit what a program gains if it skips them. Rounds on a
device that was not idle before them do not count. Isolated calls (verifier/handoff_gpu.py) show the cost of a
call that shares nothing with others, and so the gain from batching across calls.
"""

from __future__ import annotations

import math
import statistics
from contextlib import suppress
from dataclasses import replace
from functools import partial

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.evidence import SecondsByRole
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.gpu.mode import Mode, Modes
from aisp_mcp.judge.parent.timing.gpu.round import NOTHING_MAPPED, DeviceMemory, GpuRound
from aisp_mcp.judge.parent.timing.gpu.turns import ROUND_S, Series, stage_request, warm_up
from aisp_mcp.judge.presets import GPU_ROUNDS, round_count
from aisp_mcp.judge.protocol.messages import DUMMY
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import CAN_WAIT
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.estimate import MAX_DISCARDED, MIN_GAIN, with_usable_seconds
from aisp_mcp.judge.verifier import handoff_gpu

ROUNDS = GPU_ROUNDS  # median of 3: robust to one outlier
EACH = dict.fromkeys(Role, ROUNDS)
DUMMY_CALLS = 8  # of a round of dummy calls
ANEW = 2.0  # times the worker's own seconds, if a program captures a graph or compiles for each address
MUCH_LESS = 0.8  # of the seconds of such a call, with its inputs at one address
STORE_ROUNDS = 4  # of dummy calls, with and without copies of their outputs
CONFIRMED = 0.02  # largest difference between the worker's ratio and the device-only ratio


def measure(driver: Driver) -> None:
    """Store the seconds per call of each role in the replicate's result. Raises ComparisonAborted."""
    session, device, memory = driver.session, driver.result.device, DeviceMemory(driver)
    counts = {role: _calls(driver, role) for role in Role}
    for role in (Role.BASELINE, Role.CANDIDATE):
        session.modes.change(role, session.modes.of(role).in_replicate(session.on_host))
    try:
        for role, count in counts.items():
            if (
                role is not Role.CANDIDATE
            ):  # or isolated calls with the host would be the first to need that much memory
                own = driver.workers[role].control.layout.own
                count = min(max(count, handoff_gpu.MIN_UNGATED), own.capacity)
            warm_up(GpuRound(memory, role, session.modes, False, count))
        first = _many_and_isolated(memory, counts, True)
        device.device_only, device.isolated, _, device.copies_s = first
        device.gated = _all_gated(driver)
        if not _confirmed(driver):  # if a baseline cannot wait at the gate, host time already counts
            second = _many_and_isolated(memory, counts, False) if session.modes.baseline.gated else first
            device.with_host, device.isolated_with_host, device.worker_with_host, device.copies_with_host_s = second
    finally:
        with suppress(BenchmarkError):  # or it would mask the exception that ended the rounds
            for role in Role:
                session.map_memory(driver.number(role), NOTHING_MAPPED)
    mode, busy = session.modes.candidate, list[str]()
    device.discarded_rounds = mode.discarded
    if mode.discarded > MAX_DISCARDED:
        busy = [wording.DEVICE_RARELY_IDLE]
    observed = _observes_copies(driver) and bool(device.isolated)
    device.copying = mode.copies or bool(mode.stored)
    reasons = [*mode.reasons, *busy, *([mode.stored] if mode.stored and not observed else [])]
    device.overcounted = "; ".join(dict.fromkeys(reasons))
    modes = {"False": vars(session.modes.baseline), "True": vars(mode)}
    session.log.append("gate", replicate=driver.result.index, modes=modes, **device.log_fields())


def _calls(driver: Driver, role: Role) -> int:
    """Number of calls that keep the device busy for ROUND_S, by earlier replicates or by the worker's own clock."""
    call_s = driver.session.modes.of(role).call_s or driver.claimed_s[role]
    return round_count(call_s, ROUND_S, driver.workers[role].control.layout.own.capacity, driver.session.random)


def _confirmed(driver: Driver) -> bool:
    """Return True if the workers' clocks agree with the device-only times, so their ratio contains no host time."""
    worker_s, device_only = _worker_s(driver), with_usable_seconds(driver.result.device).device_only
    if min(worker_s.values()) <= 0:
        return False
    log_ratios = [
        math.log(s[Role.BASELINE] * s[Role.BASELINE_REPEAT]) / 2 - math.log(s[Role.CANDIDATE])
        for s in (worker_s, device_only)
    ]
    return abs(log_ratios[0] - log_ratios[1]) <= CONFIRMED


def _worker_s(driver: Driver) -> SecondsByRole:
    """Seconds per call by each worker's own clock, in the timed rounds."""
    rounds = driver.result.rounds
    return {role: statistics.median(row.median_s for row in rounds if row.role is role) for role in Role}


def _many_and_isolated(
    memory: DeviceMemory, counts: dict[Role, int], gated: bool
) -> tuple[SecondsByRole, SecondsByRole, SecondsByRole, SecondsByRole]:
    """Seconds per call of each role: back to back, isolated where there is a gain, by the workers' clocks, and of
    copies that only these roles have.
    """
    driver, session = memory.driver, memory.driver.session
    while True:
        many, worker_s = Series(memory, counts, gated, EACH).measure()
        if gated and _is_faster_with_copies(memory, counts, many[Role.CANDIDATE]):
            session.modes.change(Role.CANDIDATE, session.modes.candidate.with_copies(wording.PREPARES_ANEW))
            continue
        modes = session.modes.decisive
        may_isolate = session.options.protections.isolated_calls and not session.on_host
        gains = may_isolate and (_observes_copies(driver) or many[Role.CANDIDATE] < MIN_GAIN * max(many.values()))
        isolated = _isolated(memory, counts, many, gated) if gains else {}
        if modes == session.modes.decisive:
            break
    if session.modes.baseline.copies:  # these would make a baseline look slow, and its own clock can be trusted
        copies_s = {role: many[role] - _worker_s(driver)[role] for role in BASELINES}
    elif gated and isolated and _observes_copies(driver):
        copies_s = {Role.CANDIDATE: _store_s(memory)}
    else:
        copies_s = {}
    return many, isolated, worker_s, copies_s


def _is_faster_with_copies(memory: DeviceMemory, counts: dict[Role, int], call_s: float) -> bool:
    """Return True if the candidate's calls take longer than with copies, which put all inputs at one address. call_s:
    of a call without copies; measured again only if it is far longer than the worker's own clock says.
    """
    driver = memory.driver
    modes = driver.session.modes
    before = modes.candidate
    if before.copies or call_s <= ANEW * _worker_s(driver)[Role.CANDIDATE]:
        return False
    modes.candidate = replace(before, copies=True, reasons=())
    try:
        seconds = Series(memory, counts, True, {Role.CANDIDATE: 1}).measure().parent_s
    finally:
        modes.candidate = before
    return seconds[Role.CANDIDATE] < MUCH_LESS * call_s


def _observes_copies(driver: Driver) -> bool:
    """Return True if outputs of the candidate are copied in back-to-back rounds, but not in isolated calls, which show
    whether it saves the time of these copies. With the host, that time may be hidden.
    """
    mode = driver.session.modes.candidate
    return bool(mode.stored) and not mode.unreadable and not mode.copies and _all_gated(driver)


def _store_s(memory: DeviceMemory) -> float:
    """Seconds that it takes to copy the outputs of a call into the arena, by rounds of a baseline's dummy calls."""
    driver, role = memory.driver, Role.BASELINE
    own = driver.workers[role].control.layout.own
    beyond = dict[bool, list[float]]({False: [], True: []})
    for turn in range(2 * STORE_ROUNDS):
        modes = Modes(baseline=Mode(stored="to time it" if turn % 2 else ""))
        gpu_round = GpuRound(memory, role, modes, True, min(DUMMY_CALLS, own.capacity))
        driver.wait_idle(driver.session.probe_s())
        timing = driver.guarded(role, partial(gpu_round.run, DUMMY))
        if timing is not None and not gpu_round.refused() and not driver.is_busy(gpu_round.probe_s):
            beyond[gpu_round.stored].append((timing.elapsed_s - sum(timing.durations_ns) / 1e9) / gpu_round.count)
    driver.session.log.append("stored", replicate=driver.result.index, seconds=list(beyond.values()))
    return max(statistics.median(beyond[True]) - statistics.median(beyond[False]), 0.0) if all(beyond.values()) else 0.0


def _isolated(memory: DeviceMemory, counts: dict[Role, int], many: SecondsByRole, gated: bool) -> SecondsByRole:
    """Seconds of each role's isolated call; empty if the driver has no stream memory operations."""
    driver = memory.driver
    if max(counts.values()) == 1:
        return dict(many)
    # A candidate's report on its driver counts no more than a baseline's.
    if not driver.workers[Role.BASELINE].control.stats[CAN_WAIT]:
        return {}
    gated = gated and _all_gated(driver)
    few = _few(driver, counts, many, gated)
    if gated:
        return Series(memory, few, True, EACH, isolated=True).measure().parent_s
    targets = EACH | dict.fromkeys(BASELINES, 1)
    isolated = Series(memory, few, False, targets, isolated=True).measure().parent_s
    return isolated | {role: max(isolated[role], many[role] + _handoff_s(memory, role)) for role in BASELINES}


def _handoff_s(memory: DeviceMemory, role: Role) -> float:
    """Seconds that the handoff of inputs adds to an isolated call with the host, by a baseline's dummy calls.

    No call counts less than this: the cost measured by a role's own calls varies as much as its host does.
    """
    worker = memory.driver.workers[role]
    modes = Modes(baseline=Mode(copies=not worker.control.read_allocations()))
    for _ in range(2):  # once more if its memory cannot be mapped
        calls = min(DUMMY_CALLS, worker.control.layout.own.capacity)
        gpu_round = GpuRound(memory, role, modes, False, calls, True)
        gpu_round.request = stage_request([gpu_round])
        timing = memory.driver.guarded(role, partial(gpu_round.run_ungated, DUMMY))
        if timing is not None:
            rows = zip(gpu_round.seconds, timing.durations_ns, strict=True)
            return float(statistics.median(seconds - inside / 1e9 for seconds, inside in rows))
    return 0.0


def _few(driver: Driver, counts: dict[Role, int], many: SecondsByRole, gated: bool) -> dict[Role, int]:
    """Numbers of isolated calls per round: at most as many as are known to fit into a stream and, with the gate, the
    same for all roles. Without it, a baseline has fewer, since the median of all replicates counts.
    """
    draw = driver.session.random
    if gated:
        least = min(max(round(handoff_gpu.ROUND_S / max(many.values())), 1), handoff_gpu.CALLS)
        few = min(draw.randint(least, least + 1), *counts.values())  # no code may know which one is its last
        return dict.fromkeys(Role, few)
    most = dict.fromkeys(BASELINES, handoff_gpu.CALLS) | {Role.CANDIDATE: draw.randint(*handoff_gpu.UNGATED_CALLS)}
    capacity = driver.workers[Role.CANDIDATE].control.layout.own.capacity
    return {role: min(number, max(counts[role], handoff_gpu.MIN_UNGATED), capacity) for role, number in most.items()}


def _all_gated(driver: Driver) -> bool:
    return all(mode.gated for mode in driver.session.modes)
