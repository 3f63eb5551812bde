"""One replicate: pilot, warm-up, isolated calls and timed palindromes, all verified, then the overhead.

Dummy rounds run in between; their outputs are meaningless and not compared. Two replicates start in parallel if cores
are idle and there is memory for both, and nothing starts during a measurement.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median_low
from typing import ClassVar

from aisp_mcp.judge.evidence import Replicate, Round, RoundCost, RoundTiming
from aisp_mcp.judge.options import Options
from aisp_mcp.judge.parent.processes.placement import spare_cpus
from aisp_mcp.judge.parent.session import ComparisonAborted, Session
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.presets import ROUNDS_PER_PALINDROME
from aisp_mcp.judge.protocol.draws.rng import BEYOND, ENDS, OF_INTEGERS, battery
from aisp_mcp.judge.protocol.layout import Layout
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.shared_memory import STRIDES
from aisp_mcp.judge.verdict import replay, values

SPARE_FOR_TWO = 3  # with this many idle cores, two replicates start at once


@contextmanager
def started_replicates(session: Session, strategy: Strategy, ready: bool = True) -> Iterator[Iterator[Driver]]:
    """Yield the replicates in turn, started and ready; none outlives the block. ready: False for goals that
    start them.
    """
    started: list[Driver] = []
    try:
        yield _in_turn(session, strategy, started) if ready else _unstarted(session, started)
    finally:
        for driver in started:
            driver.close()


def _unstarted(session: Session, started: list[Driver]) -> Iterator[Driver]:
    """Yield the replicates in turn, without processes; each has ended before the next begins."""
    for number in range(session.options.preset.replicates):
        driver = Driver(session, number)
        driver.rehearsal = started[-1].rehearsal if started else None
        started.append(driver)
        yield driver
        with session.phase("end"):
            driver.close()


def _in_turn(session: Session, strategy: Strategy, started: list[Driver]) -> Iterator[Driver]:
    """Start replicates in batches. The last one of a batch ends while the next batch loads its libraries; meanwhile,
    the first such candidate is traced.
    """
    total, at_once = session.options.preset.replicates, 1
    if spare_cpus() >= SPARE_FOR_TWO:
        at_once = session.replicates_at_once
    last: Driver | None = None
    for begin in range(0, total, at_once):
        batch = [Driver(session, number) for number in range(begin, min(begin + at_once, total))]
        started += batch
        with session.phase("start"):
            for driver in batch if last is None else ():  # nothing uses the memory, and the verifier is idle
                driver.post_attach()
            for driver in batch:
                driver.start()
            _end(last, strategy, traced=begin == at_once)
            for driver in batch:
                driver.attach()
        with strategy.look_ahead(session, batch, last):
            strategy.wait_loaded(session, batch)
        with session.phase("start"):
            strategy.share_kernels(session, batch)
            for driver in batch:
                driver.prepare()
            for driver in batch:
                driver.wait_ready()
        for driver in batch:
            yield driver
            if driver is not batch[-1]:
                _end(driver, strategy, traced=False)
        last = batch[-1]
    _end(last, strategy, traced=total <= at_once)


def _end(driver: Driver | None, strategy: Strategy, traced: bool) -> None:
    if driver is None:
        return
    if traced:
        strategy.trace(driver)
    with driver.session.phase("end"):
        driver.close()


# Rounds on each kind of inputs are this part of a timed one. Seconds of a call up to which they are run, in the first
# replicate and in every one. Chosen: they take about a twentieth of a verdict's time.
KINDS_SHARE, KINDS_FIRST_CALL_S, KINDS_CALL_S = 4, 0.05, 0.003
# Times for plain inputs, with which others are compared, and for a kind that looks worse; once if it does not.
KINDS_TIMES = 6
DROP_EVERY = 3  # palindromes between rounds whose outputs are dropped
SOME_MODES = 2  # kinds of adversarial inputs that a candidate sees in most replicates, besides its hidden round


class ReplicateRun:
    """One replicate on a device. Worker errors and wrong outputs raise ComparisonAborted.

    A goal with its own metric has a subclass in comparison.SEQUENCES, which puts one value per role into
    Replicate.metric. starts_ready: processes are started and prepared before run().
    """

    starts_ready: ClassVar[bool] = True

    @classmethod
    def lacks(cls, opened: OpenAnswer, options: Options, level: str) -> str | None:
        """A phrase for what this machine lacks for the goal, if anything."""
        return None

    def __init__(self, driver: Driver, strategy: Strategy) -> None:
        self.driver, self.strategy, self.session = driver, strategy, driver.session
        self.random, self.options = driver.session.random, driver.session.options
        self.compared_halves = range(0)
        self.touched: dict[Role, int] = {}  # bytes, in addition to those of the prepared process

    def run(self) -> Replicate:
        """Warm up, measure, verify."""
        driver, strategy, preset = self.driver, self.strategy, self.options.preset
        telling = self.session.telling
        driver.wait_ready()
        singles = self._pilot()
        telling.step("warming up")
        self._warm_up()
        for role, worker in driver.workers.items():
            rest, sampling = self._rest(role), self.session.opened["goal"] == "memory"
            driver.guarded(role, partial(worker.watch_memory, rest, sampling))
        if driver.count(Role.CANDIDATE) > 1 and self.options.protections.isolated_calls:
            strategy.measure_isolated_calls(driver)
        hidden = self.random.randrange(ROUNDS_PER_PALINDROME * preset.palindromes)
        compared = math.ceil(preset.palindromes / 2) + 1
        first = self.random.randrange(2 * preset.palindromes - compared + 1)
        self.compared_halves = range(first, first + compared)
        comparisons = preset.comparisons_per_round(self.random)
        halves = list(zip(self._half_palindromes(), comparisons, strict=True))
        costs = list[RoundCost | None]()
        for done, (half, number) in enumerate(halves):
            telling.step("timing both", done / len(halves))
            costs.append(self._half_palindrome(half, hidden, number))
        dummies = [cost for cost in costs if cost]
        result = driver.result
        for role, worker in driver.workers.items():
            result.host_peak[role] = driver.guarded(role, worker.added_memory)
            result.stats[role] = list(worker.control.stats[: STRIDES + 1])
        result.overhead = overhead = strategy.finish(driver, singles, dummies)
        fitted = {"singles": [single.cost for single in singles], "dummies": dummies, "fitted": vars(overhead)}
        self.session.log.append("overhead", replicate=result.index, **fitted)
        result.rounds = [
            replace(timed_round, net_s=replay.net_s(timed_round.role, timed_round.timing, overhead))
            for timed_round in result.rounds
        ]
        if type(self) is ReplicateRun:
            self.time_kinds()
        return result

    def _half_palindromes(self) -> list[list[tuple[int, Role]]]:
        """(number, role) of the rounds that share one set of inputs."""
        number = itertools.count()
        return [[(next(number), role) for role in order] for order in self.options.preset.half_palindromes(self.random)]

    def _rest(self, role: Role) -> int:
        """Bytes of the role's prepared process, and of the output that a baseline keeps for dummy calls."""
        rest = self.driver.result.host_peak[role] + self.touched.get(role, 0)
        if role is Role.CANDIDATE or self.options.device == "cuda":
            return rest
        return rest + sum(spec.nbytes for spec in self.driver.workers[role].control.layout.outputs)

    def _pilot(self) -> list[RoundTiming]:
        """Run rounds of one call, never counted: they give the duration of a call and the overhead of an empty round.

        In between, the candidate runs one call on some kinds of adversarial inputs; on all kinds in one replicate,
        which is drawn at random.
        """
        driver, singles = self.driver, list[RoundTiming]()
        has_battery = not driver.result.index and self.options.protections.adversarial
        for turn, mode in enumerate([None, *self._pilot_modes()]):
            self.session.telling.step("checking the candidate's outputs")
            if mode:
                driver.fill({Role.CANDIDATE: 1}, mode)
                self.strategy.run_round(driver, Role.CANDIDATE, 1)
                driver.verify(Role.CANDIDATE, [0])
                continue
            driver.fill(dict.fromkeys(Role, 1))
            for role in Role:
                timing = self.strategy.run_round(driver, role, 1)
                driver.learn(role, timing)
                if role is not Role.CANDIDATE and turn:
                    singles.append(timing)
                compared = bool(turn) if role is Role.CANDIDATE and has_battery else role is Role.CANDIDATE or not turn
                driver.verify(role, [0] if compared else [])
            if not turn and has_battery:
                self._battery()
        return singles

    def _battery(self) -> None:
        """Run the candidate on the inputs that decide whether it is correct, regardless of fresh inputs."""
        draw, opened = random.Random(self.session.battery), self.session.opened
        for mode, seed in battery(Layout.from_json(opened["layout"]).frame, opened["call_s"], draw):
            self.session.telling.step("checking the candidate's outputs on unusual inputs")
            if mode != "plain" and mode not in self.session.adversarial:
                continue
            self.driver.fill({Role.CANDIDATE: 1}, mode, battery=seed)
            self.strategy.run_round(self.driver, Role.CANDIDATE, 1)
            self.driver.verify(Role.CANDIDATE, [0])

    def _pilot_modes(self) -> list[str | None]:
        """Kinds of inputs of the pilot rounds after the first, in random order; None: plain ones for all roles."""
        adversarial = self.session.adversarial
        if self.driver.result.index != self.session.thorough:
            adversarial = self.random.sample(adversarial, min(len(adversarial), SOME_MODES))
        modes: list[str | None] = [*adversarial, *[None] * self.strategy.pilot_rounds]
        self.random.shuffle(modes)
        return modes

    def _warm_up(self) -> None:
        """Run one full round per role, verified like any other and discarded; then a dummy round of each baseline, if
        needed; and bring the processes' memory to rest.
        """
        driver = self.driver
        for _ in range(2):
            counts = driver.counts()
            driver.fill(driver.as_many(counts))  # or a process with fewer lists would make them faster in what follows
            for role, count in counts.items():
                driver.learn(role, self.strategy.run_round(driver, role, count))
                driver.verify(role, driver.sample(count, 1) if role is Role.CANDIDATE else [])
            if min(counts.values()) > 1 or driver.call_s[Role.BASELINE] > self.options.preset.round_s:
                break
        for role in BASELINES:
            self.strategy.dummy_round(driver, role, counts[Role.CANDIDATE])  # the first of each pays for page faults
        self.touched = self.strategy.settle(driver, counts)

    def _half_palindrome(self, half: list[tuple[int, Role]], hidden: int, comparisons: int) -> RoundCost | None:
        """Run half a palindrome on one set of inputs, and compare this many of the candidate's calls.

        Before the round with the number `hidden`, the candidate gets an adversarial round. After a first half, or after
        both halves if there are few, comes a dummy round: the overhead of the loop under the same conditions.
        """
        driver, result = self.driver, self.driver.result
        if self.session.adversarial and any(number == hidden for number, _ in half):
            self._adversarial_round()
        counts = {role: driver.count(role) for _, role in half}
        sample = driver.sample(counts[Role.CANDIDATE], comparisons)
        is_compared = half[0][0] // len(Role) in self.compared_halves
        driver.fill(driver.as_many(counts) if is_compared else counts, sample=sample)
        roles = list[Role]()
        for number, role in half:
            timing = self.strategy.run_round(driver, role, counts[role])
            result.rounds.append(Round(role, timing.elapsed_s / timing.count, replay.median_s(timing), timing))
            self._record(number, role, timing)
            if self.session.is_tight:  # the next round's outputs will be in the same memory
                driver.verify(role, sample if role is Role.CANDIDATE else [], timed=True)
            else:
                roles.append(role)
        compared = [call for call in sample if call < counts[Role.BASELINE]]
        driver.fetch(Role.BASELINE, compared)  # most of the candidate's outputs are compared with these
        for role in roles:
            driver.verify(role, sample if role is Role.CANDIDATE else [], timed=True)
        enough = self.options.preset.palindromes >= len(Role)
        number = half[0][0]
        if not (number + len(Role)) % (DROP_EVERY * ROUNDS_PER_PALINDROME):
            self.strategy.drop_outputs(driver, counts)
        if enough and number % ROUNDS_PER_PALINDROME:
            return None
        calls = 1 if number // ROUNDS_PER_PALINDROME % 2 else counts[Role.BASELINE]
        return self.strategy.dummy_round(driver, self.random.choice(BASELINES), calls)

    def _adversarial_round(self) -> None:
        driver = self.driver
        count = driver.count(Role.CANDIDATE)
        driver.fill({Role.CANDIDATE: count}, self.random.choice(self.session.adversarial))
        self.strategy.run_round(driver, Role.CANDIDATE, count)
        driver.verify(Role.CANDIDATE, driver.sample(count, 3))

    def time_kinds(self) -> None:
        """Time all roles on each kind of inputs, in turns on the same inputs: a gain may depend on their values. What
        lies beyond a declared range comes last, since functions may raise there. A kind on which one replicate gains as
        much as on plain ones is left out in later ones: worse is what is worse in all. Other kinds of texts and graphs
        and the ends of ranges are compared alone, since they are seldom what a program runs on, and a generator of
        one's own has none.
        """
        driver, session = self.driver, self.session
        if session.opened["facts"].get("python_inputs"):
            return
        call_s = max(driver.call_s.values())
        is_short = call_s <= (KINDS_CALL_S if driver.result.index else KINDS_FIRST_CALL_S)
        if self.options.device != "cpu" or session.opened["goal"] != "speed" or not session.adversarial or not is_short:
            return
        untested = session.opened["facts"].get("inputs_not_tested", {})
        is_bounded = "larger" in untested
        names = {} if is_bounded or "thousands" in {*session.adversarial, *untested} else OF_INTEGERS
        known, kinds = session.as_quick_kinds, driver.result.kinds
        timed = [mode for mode in session.adversarial if mode not in ENDS] + [BEYOND] * is_bounded
        modes = [mode for mode in timed if names.get(mode, mode) not in known]
        for mode in ["plain", *modes] if modes else ():
            name = names.get(mode, mode)
            try:
                kinds[name] = self._time_kind(mode, kinds.get("plain"))
            except ComparisonAborted:
                if mode != BEYOND:
                    raise
                known.add(name)
        known |= {mode for mode in kinds if not values.is_worse(kinds[mode], kinds["plain"])}

    def _time_kind(self, mode: str, plain: Sequence[float] | None) -> list[float]:
        """The shortest seconds per call in a few rounds on one kind of inputs: of both baselines, and of the candidate
        in the first half of them and in the other. It runs first, and last, and so on: what goes before it may favour
        it.
        """
        driver, seconds = self.driver, [math.inf] * (len(Role) + 1)
        for number in range(KINDS_TIMES):
            counts = {role: max(1, driver.most_calls(role) // KINDS_SHARE) for role in Role}
            driver.fill(counts, mode)
            for role in list(Role) if number % 2 else list(Role)[::-1]:
                timing = self.strategy.run_round(driver, role, counts[role])
                at = role.number + (role is Role.CANDIDATE and number >= KINDS_TIMES // 2)
                seconds[at] = min(timing.running_s / timing.count, seconds[at])
            measured = [each for each in seconds if each < math.inf]
            if plain and not values.looks_worse(measured, plain):
                break
        return measured

    def _record(self, number: int, role: Role, timing: RoundTiming) -> None:
        apart = {"apart_ns": median_low(timing.apart_ns)} if timing.apart_ns else {}
        fields = {name: value for name, value in vars(timing).items() if name != "apart_ns"} | apart
        fields["account"] = vars(timing.account)
        self.session.log.append("round", replicate=self.driver.result.index, turn=number, side=role, **fields)
