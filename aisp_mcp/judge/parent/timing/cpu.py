"""Steps of a comparison on a CPU: rounds whose outputs stay in the worker, isolated calls, and dummy rounds.

Only the loop around a candidate's calls, about a microsecond per call, is subtracted from its rounds. The parent reads
the outputs of compared calls out of the stopped worker. A program that returns the same memory repeatedly needs copies.
The candidate's copies count as part of its time, while the baseline's report of its own copies is subtracted.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aisp_mcp.judge.evidence import Overhead, Round, RoundCost, RoundTiming
from aisp_mcp.judge.parent.processes import process
from aisp_mcp.judge.parent.processes.placement import EXTENSIONS, INDUCTOR
from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.memory.imports import note_imports
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.presets import round_count
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import CONVERT, DROP, DUMMY, ISOLATED, NO_COPY, SETTLE, TOUCH
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import UNSETTLED
from aisp_mcp.judge.verdict import replay
from aisp_mcp.judge.verdict.estimate import fit_overhead

ROUND_S, MIN_CALLS = 1e-3, 3  # of isolated calls
MOST_ROUNDS, DISTURBED = 2.5, 0.02  # times the preset's, with disturbed ones; disturbed from this share of a round on
# Randomly compared isolated calls in the candidate's rounds up to the lower quartile, which counts. A candidate that
# fakes half of the calls there escapes in one of a thousand replicates.
COMPARED = 10
COPY_ROUNDS = 9  # of one call per role, for a candidate that returns one buffer again and again
MOST_SETTLING, QUIET_ROUNDS, FEW_FAULTS = 8, 2, 32  # faults in a round
NUMBER_BYTES = 16  # of an output that is a number: it takes no memory that matters
LARGE_FRAME = 64 << 10  # bytes of a call, for which it is worth drawing inputs of longer rounds
STEADY_SHARE = 0.05  # of the faults of a call, where each call asks the kernel for memory
SINGLE_ROUNDS = 4  # rounds of one call per role, if the verifier has no core of its own; the shortest counts


def is_settled(faults: Sequence[Sequence[int]]) -> bool:
    """Return True if the last rounds of all roles had hardly any page faults, or all of them as many. faults: by round,
    and by role in each.
    """
    last = [number for turn in faults[-QUIET_ROUNDS:] for number in turn]
    return len(faults) >= QUIET_ROUNDS and max(last) - min(last) <= max(FEW_FAULTS, STEADY_SHARE * max(last))


class CpuStrategy(Strategy):
    """Rounds of a CPU. Inputs and outputs are in shared host memory."""

    pilot_rounds = 2
    caches = (INDUCTOR, EXTENSIONS)
    round_bytes = 48 << 20
    readable: bool | None = None  # whether the parent can read outputs in a worker's memory; None until it has tried

    def note_imports(self, session: Session) -> None:
        if session.opened["goal"] == "memory":
            note_imports(session)

    def run_round(self, driver: Driver, role: Role, count: int, bits: int = 0) -> RoundTiming:
        bits |= self.output_bits(driver)
        if not bits & NO_COPY:
            return driver.run_round(role, count, bits)
        # A dummy call has no arguments.
        converts, worker = driver.session.opened["converts"] and not bits & DUMMY, driver.workers[role]
        converted = max(driver.filled.get(role, 0), count) if converts else 0
        converted_s = driver.run_round(role, converted, CONVERT).running_s if converts else 0.0
        timing = driver.run_round(role, count, bits)
        unsettled = worker.control.stats[UNSETTLED]
        settled_s = driver.run_round(role, count, SETTLE | NO_COPY).running_s if unsettled else 0.0
        return replace(timing, converted_s=converted_s, settled_s=settled_s, converted=converted)

    def dummy_round(self, driver: Driver, role: Role, count: int) -> RoundCost | None:
        """Dummy round of one call if outputs stay in the worker: outputs of many calls would change the memory that its
        own calls get. Its timed rounds show the loop's remaining cost.
        """
        return self.run_round(driver, role, 1 if self.output_bits(driver) else count, DUMMY).cost

    def settle(self, driver: Driver, counts: dict[Role, int]) -> dict[Role, int]:
        """Touch memory, and run rounds that do not count until no process needs more.

        The candidate has run many calls by then and the baselines few. In a virtual machine, a page fault took 11 µs: a
        softmax of 16 MiB took 55 ms in new memory and 8 ms in other. Calls that touch new memory take longer, so these
        rounds become longer, too, until they are as long as timed ones.
        """
        touched, faults, session = Counter[Role](), list[list[int]](), driver.session
        if session.opened["goal"] == "memory":  # whose allocator returns what is free
            return touched
        most = since = 0  # faults since then are of rounds of so many calls
        grows = Layout.from_json(session.opened["layout"]).frame >= LARGE_FRAME
        while len(faults) < MOST_SETTLING and not is_settled(faults[since:]):
            if is_longer := since == len(faults):
                counts = driver.most_calls_of_all() if grows else counts
                most = max(counts.values())
                touched.update(self._touch(driver, most))
            if session.opened["in_place"] or (grows and is_longer):
                driver.fill(driver.as_many(counts))
            rounds = {role: self.run_round(driver, role, count) for role, count in counts.items()}
            for role, timing in rounds.items():
                driver.learn(role, timing)
            for role in BASELINES:
                self.dummy_round(driver, role, counts[Role.CANDIDATE])
            faults.append([timing.account.minor_faults for timing in rounds.values()])
            if grows and max(driver.most_calls_of_all().values()) > most:
                since = len(faults)
        session.log.append("settled", replicate=driver.result.index, touched=touched, faults=faults, calls=most)
        return touched

    def _touch(self, driver: Driver, count: int) -> dict[Role, int]:
        """Touch memory for the outputs of that many calls. Returns the bytes that each process did not have before."""
        touched = dict[Role, int]()
        for role, worker in driver.workers.items():
            before = driver.guarded(role, worker.settle_memory)
            driver.run_round(role, count, TOUCH)
            touched[role] = max(driver.guarded(role, worker.settle_memory) - before, 0)
        return touched

    def output_bits(self, driver: Driver) -> int:
        """The bit for rounds without copies, if the parent can read the outputs and they meet the contract. In memory
        benchmarks, outputs of several calls must not be alive at once.
        """
        session = driver.session
        if session.opened["goal"] == "memory" or not session.options.protections.contract:
            return 0
        if self.readable is None:
            self.readable = process.is_readable(driver.workers[Role.BASELINE].pid)
            if not self.readable:
                why = "the kernel does not let this user read the memory of its own processes"
                session.log.append("unreadable", why=why)
        return NO_COPY if self.readable else 0

    def drop_outputs(self, driver: Driver, counts: dict[Role, int]) -> None:
        """Outputs of timed rounds stay in memory until they are compared, so each call writes to new memory. Nothing is
        compared here, so a candidate may do what it likes: these rounds can only widen an interval.
        """
        layout = driver.workers[Role.BASELINE].control.layout
        is_number = sum(spec.nbytes for spec in layout.outputs) <= NUMBER_BYTES
        if is_number or driver.session.opened["in_place"] or not self.output_bits(driver):
            return
        for role, count in counts.items():
            timing = driver.run_round(role, count, NO_COPY | DROP)
            driver.result.dropped_s.setdefault(role, []).append(replay.median_s(timing))

    def measure_isolated_calls(self, driver: Driver) -> None:
        if verifier_has_a_core(driver):
            driver.result.isolated, driver.result.handoffs_s = isolated_calls(driver)
        else:
            driver.result.isolated = rounds_of_one_call(driver)
        fields = {"seconds": driver.result.isolated, "handoffs_s": driver.result.handoffs_s}
        driver.session.log.append("isolated", replicate=driver.result.index, **fields)

    def finish(self, driver: Driver, singles: Sequence[RoundTiming], dummies: Sequence[RoundCost]) -> Overhead:
        of_role: dict[Role, list[RoundTiming]] = {role: [] for role in Role}
        for timed_round in driver.result.rounds:
            of_role[timed_round.role].append(timed_round.timing)
        candidate, baselines = of_role[Role.CANDIDATE], [of_role[role] for role in BASELINES]
        overhead = fit_overhead([*(timing.cost for timing in itertools.chain(singles, *baselines)), *dummies])
        settling = fit_overhead([timing.settling for timing in itertools.chain(singles, *baselines)])
        overhead = replace(overhead, settling_s=settling.fixed_s)
        if not self.output_bits(driver) or not any(timing.copied_s for timing in candidate):
            return overhead
        return replace(overhead, credited_s=self._observed_copies_s(driver, overhead))

    def _observed_copies_s(self, driver: Driver, overhead: Overhead) -> float:
        """Seconds per call that the candidate spends on copies in timed rounds, as observed by the parent.

        In rounds of one call, it makes no copies. The gain of its calls over the baselines' in those rounds, by the
        parent's clock alone, is its gain in timed rounds without the copies.
        """
        seconds = dict[Role, list[float]]((role, []) for role in Role)
        for _ in range(COPY_ROUNDS):
            driver.fill(dict.fromkeys(Role, 1))
            for role in driver.session.random.sample(list(Role), len(Role)):
                seconds[role].append(self.run_round(driver, role, 1).running_s)
            driver.verify(Role.CANDIDATE, [0], timed=True)
        driver.session.log.append("copies", replicate=driver.result.index, seconds=seconds)
        return observed_copies_s(driver.result.rounds, overhead, seconds)


def observed_copies_s(rounds: Sequence[Round], overhead: Overhead, single: Mapping[Role, Sequence[float]]) -> float:
    """Seconds per call of the candidate's copies, at most what it reports. single: seconds of rounds of one call.

    The difference between the two baselines counts against the candidate.
    """
    middle = {role: statistics.median(seconds) for role, seconds in single.items()}
    first, repeat = (middle[role] for role in BASELINES)
    saved_s = (first + repeat) / 2 - middle[Role.CANDIDATE] - abs(first - repeat) / 2
    of_role = dict[Role, list[float]]((role, []) for role in Role)
    for timed_round in rounds:
        copied_s = 0.0 if timed_round.role is Role.CANDIDATE else timed_round.timing.copied_s
        of_role[timed_round.role].append(
            overhead.net(timed_round.timing.running_s - copied_s, timed_round.timing.count)
        )
    base_s = statistics.fmean(statistics.median(of_role[role]) for role in BASELINES)
    own = [
        timed_round.timing.copied_s / timed_round.timing.count
        for timed_round in rounds
        if timed_round.role is Role.CANDIDATE
    ]
    return min(max(statistics.median(of_role[Role.CANDIDATE]) - base_s + saved_s, 0.0), statistics.median(own))


def verifier_has_a_core(driver: Driver) -> bool:
    """Return True if the verifier, which runs on this process's cores, shares none with the workers."""
    return not os.sched_getaffinity(0) & driver.session.placement.cpus


def isolated_calls(driver: Driver) -> tuple[dict[Role, list[float]], dict[Role, list[float]]]:
    """Median seconds of an isolated call on the role's own clock, and what it took beyond that on the verifier's, in
    each of some rounds, per role.

    The verifier's clock also counts what is not the function: handing over inputs, making arguments of them and storing
    outputs, which may take ten times as long as the call. What this takes a candidate longer than the baselines counts
    against it (verdict/bound.py), so its own clock cannot hide anything. Raises ComparisonAborted.
    """
    all_seconds, beyond = (dict[Role, list[float]]((role, []) for role in Role) for _ in range(2))
    session = driver.session
    wanted = session.options.preset.isolated_rounds
    for left in reversed(range(int(MOST_ROUNDS * wanted))):
        counts = {role: _count(driver, role) for role in Role}
        numbered = {driver.number(role): count for role, count in counts.items()}
        session.stage({"counts": numbered, "seed": session.new_seed(), "sample": []})
        order = session.random.sample(list(Role), len(Role))
        rounds = {role: _round(driver, role, counts[role]) for role in order}
        _verify(driver, counts, math.ceil(COMPARED / (wanted // 4 + 1)))
        needed = wanted - len(all_seconds[Role.CANDIDATE])
        if left >= needed and _are_disturbed([*rounds.values()]):
            continue
        for role, (seconds, timing, _) in rounds.items():
            own = [own_ns / 1e9 for own_ns in timing.durations_ns]
            all_seconds[role].append(statistics.median(own))
            beyond[role].append(statistics.median(map(operator.sub, seconds, own)))
        if needed == 1:
            break
    return all_seconds, beyond


def _are_disturbed(rounds: Sequence[tuple[list[float], RoundTiming, float]]) -> bool:
    """Return True if other programs took a notable part of these rounds' time from the worker or the verifier."""
    lost_s = sum(delayed_s + timing.account.disturbed_s for _, timing, delayed_s in rounds)
    return lost_s > DISTURBED * sum(timing.elapsed_s for _, timing, _ in rounds)


def _verify(driver: Driver, counts: dict[Role, int], compared: int) -> None:
    """Compare after all roles have run, since outputs may be compared with a baseline's. compared: calls of the
    candidate.
    """
    for role, count in counts.items():
        driver.verify(role, driver.sample(count, compared) if role is Role.CANDIDATE else [])


def _count(driver: Driver, role: Role) -> int:
    """Number of calls that fill ROUND_S, at least MIN_CALLS."""
    capacity = driver.workers[role].control.layout.own.capacity
    least = min(MIN_CALLS, capacity)
    return max(round_count(driver.call_s[role], ROUND_S, capacity, driver.session.random), least)


def _round(driver: Driver, role: Role, count: int) -> tuple[list[float], RoundTiming, float]:
    """Run one round; return the seconds of each call on the verifier's clock, and those for which the verifier was
    delayed. Raises ComparisonAborted.
    """
    worker, verifier, deadline_s = driver.workers[role], driver.session.verifier, driver.deadline_s(role, count)
    driver.note_outputs(role, at_rest=False)
    worker.control.begin_handoff()
    with driver.session.phase("measure"):
        verifier.post("handoff_cpu", worker_id=driver.number(role), deadline_s=deadline_s)
        try:
            timing = driver.guarded(role, lambda: worker.run_round(count, deadline_s, ISOLATED))
        finally:
            worker.control.end_handoff()  # there is no further answer
            answer: dict[str, Any] = verifier.collect("handoff_cpu")
    return answer["seconds"], timing, answer["delayed_s"]


def rounds_of_one_call(driver: Driver) -> dict[Role, list[float]]:
    """Seconds of each round of one call, per role. Raises ComparisonAborted."""
    all_seconds = dict[Role, list[float]]((role, []) for role in Role)
    for _ in range(SINGLE_ROUNDS):
        driver.fill(dict.fromkeys(Role, 1))
        for role in driver.session.random.sample(list(Role), len(Role)):
            all_seconds[role].append(driver.run_round(role, 1).elapsed_s)
        for role in Role:
            driver.verify(role, [0] if role is Role.CANDIDATE else [])
    return all_seconds
