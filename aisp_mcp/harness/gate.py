"""What a call takes on a GPU by the parent's clock alone, less what a round takes to begin and end.

What makes a round on a GPU longer than its calls is the host, the flushes between them and the copies of inputs and
outputs. All of it happens in the worker's own process, which could leave some of it out. Here is none of it. The worker
lays all calls of a round into its stream, where they wait at a gate: a word of memory that the parent holds. Only then
the verifier writes their inputs, which nobody has seen before, all at once, and empties the L2. The parent reads its
clock and opens the gate. Behind the last call the device itself says that it has ended; the verifier waits for that or
for the answer, reads the clock when its own smallest kernel has had its turn, and on the same turn takes the outputs
from where they lie (reached.py) to compare them. Nothing is left to leave out but the work, and the pauses between
calls.

Who waits for the device before all calls are laid out, or has more kernels than its queue holds, is asked for rounds
without the gate, in which the host counts as well. So are all sides where the shim's clock does not agree, because it
counts some of the host's time: its ratio must then lie between these two. Whose outputs or inputs cannot lie in memory
of its own (one buffer used again and again, a graph captured on its inputs) gets rounds with copies, and pays for them.
Rounds on a device that does not stand still before them do not count. Rounds of one call show what it costs alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.harness.layout import READ_CALLS
from aisp_mcp.harness.memory import ENDED, REFUSED, WAITS
from aisp_mcp.harness.shim import DRY, GATE, READ, WARM
from aisp_mcp.harness.timing import AGAIN, BASELINE, CANDIDATE, LEAST_NET, SIDES, round_count, sample_calls
from aisp_mcp.harness.workers import Lap, WorkerProcess

if TYPE_CHECKING:
    from aisp_mcp.harness.trial import Trial

ROUNDS = 3  # per side, of which the median counts: who cheats in one of them, or is disturbed in it, changes nothing
COMPARED = 16  # calls at random per round: 160 over the two thirds of fifteen rounds without which no cheat pays
Seconds = dict[int, float]  # by side
BEGINNINGS = 4  # rounds without calls
CONFIRMED = 0.02  # what the shim's ratio and that of the device alone may be apart by
ROUND_S = 3e-3  # of work on the device: what a candidate could do at its ends, some 30 µs, is a hundredth of that
LEAST_S = 2e-3  # of it, where so much can be had at all
LEAST_CALLS = 4
SINGLES, GAIN = 5, 0.97  # rounds of one call per side, where a call takes no more of a baseline's
PATIENCE_S = 0.4  # until all calls of a round wait at the gate, and five times what they usually take
MOST_VOID = 6  # rounds of a program, per triple, on a device that did not stand still


@dataclass
class Way:
    """How rounds are asked for of one program. read: without copies. gated: the device alone counts. most: how many of
    its calls can wait. void: rounds that did not count. why: what forbids better ways, in words.
    """

    read: bool = True
    gated: bool = True
    most: int = READ_CALLS
    void: int = 0
    why: list[str] = field(default_factory=list)

    def fewer(self, count: int) -> None:
        """Not all of so many calls came to wait at the gate: ask for fewer, in the end without it."""
        if count > LEAST_CALLS:  # three quarters last LEAST_S; if these do not fit either, it is no near miss
            self.most = max(-(-3 * count // 4) if self.most == READ_CALLS else count // 4, LEAST_CALLS)
        else:
            self.openly("it waits for its device, or lays more into its stream than fits")

    def openly(self, why: str) -> None:
        """Leave the gate out."""
        self.gated = False
        self.why.append(why)

    def copying(self, why: str) -> None:
        """Leave inputs and outputs where the referee has them."""
        self.read = False
        self.why.append(why)


@dataclass
class _Asked:
    """One round: so many calls of a side, in that way, behind the gate or not."""

    trial: Trial
    side: int
    way: Way
    gated: bool
    count: int
    single: bool = False
    watched: bool = False
    own_s: float = 0.0  # per call, by its own clock, where the host counts
    probe_s: float = 0.0  # how long the verifier's smallest kernel waited for its turn behind the answer

    @property
    def bits(self) -> int:
        return WARM | (READ if self.way.read else 0) | (GATE if self.gated else 0)

    @property
    def capacity(self) -> int:
        """Of the memory for inputs of its own."""
        return self.worker.board.layout.own.capacity

    @property
    def judged(self) -> bool:
        """Whether its outputs are compared; the baseline is the specification."""
        return self.side == CANDIDATE

    @property
    def worker(self) -> WorkerProcess:
        return self.trial.workers[self.side]

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        return self.trial.bench.verifier.ask(verb, side=self.trial.first + self.side, **request)

    def addresses(self) -> list[int]:
        """Where the worker says that the outputs lie."""
        return list(self.worker.board.addresses[: self.count * len(self.worker.board.layout.outputs)])

    def reached(self) -> bool:
        """Whether the verifier finds the inputs' place and, of a candidate, that of all outputs, where it has to."""
        if not self.way.read:
            return True
        found = self.ask("reach", pieces=self.worker.board.read_pieces(), addresses=self.addresses())
        if found["own"] and (found["whole"] or not self.judged):
            return True
        self.way.copying("its outputs lie on each other, or where they cannot be reached")
        return False

    def poured(self) -> bool:
        """Write the inputs. Whether the device stood still behind that: who waits for inputs has begun by then."""
        self.trial.idle(self.trial.bench.verifier.ask("idle")["probe_s"])
        if not self.trial.is_busy(self.ask("pour", own=self.way.read)["probe_s"]):
            return True
        self.way.void += 1
        if self.gated and self.way.void > MOST_VOID:  # as with several streams that wait for each other
            self.way.openly("the device hardly stands still while its calls wait")
            self.way.void = 0
        return self.way.void > MOST_VOID

    def watch(self) -> None:
        """Have the verifier wait for the answer, and then take the outputs before anything else."""
        request: dict[str, Any] = {"own": self.way.read} if self.judged else {}
        request |= {"pipe": self.worker.answers_at, "ended": self.worker.board.stats[ENDED]}
        self.trial.bench.verifier.post(
            self._verb, side=self.trial.first + self.side, deadline_s=self.deadline_s, **request
        )
        self.watched = True

    def seen(self) -> float:
        """The clock when the answer had come and the device was done."""
        self.watched = False
        found = self.trial.bench.verifier.collect(self._verb)
        self.probe_s = float(found["probe_s"])
        return float(found["at_s"])

    @property
    def _verb(self) -> str:
        return "snapshot" if self.judged else "probe"

    @property
    def deadline_s(self) -> float:
        return self.trial.deadline_s(self.side, self.count)


def clocked(trial: Trial) -> None:
    """Leave the seconds per call of each side in the trial's result. Raises Judged."""
    bench, found = trial.bench, trial.result.device
    counts = {side: _calls(trial, side) for side in SIDES}
    for way in bench.ways.values():
        way.void = 0
    try:
        for side, count in counts.items():
            _warm_up(_Asked(trial, side, bench.ways[side == CANDIDATE], False, count))
        found.alone, found.single, _ = _both(trial, counts, True)
        found.gated = all(way.gated for way in bench.ways.values())
        if not _confirmed(trial):
            found.with_host, found.single_with_host, found.own_with_host = _both(trial, counts, False)
    finally:
        with suppress(BenchmarkError):  # or it would take the place of what ended the rounds
            for side in SIDES:
                bench.ask("reach", side=trial.first + side, pieces=[], addresses=[])
    way = bench.ways[True]
    if way.void > MOST_VOID:  # work that was done beforehand is in none of these rounds: they prove no gain
        way.why.append("the device hardly stood still")
        found.alone[CANDIDATE], found.with_host = math.sqrt(found.alone[BASELINE] * found.alone[AGAIN]), {}
    found.copying, found.hindered = not way.read, "; ".join(dict.fromkeys(way.why))
    ways = {str(candidate): vars(way) for candidate, way in bench.ways.items()}
    bench.log.append("gate", replicate=trial.result.index, ways=ways, **vars(found))


def _calls(trial: Trial, side: int) -> int:
    """How many calls keep the device busy for ROUND_S, by the side's own clock; who bends it is asked again."""
    capacity = trial.workers[side].board.layout.own.capacity
    least = min(LEAST_CALLS, capacity)
    return max(round_count(trial.own_s[side], ROUND_S, capacity, trial.bench.draw), least)


def _warm_up(asked: _Asked) -> None:
    """Rounds that do not count. Outputs that all stay alive need new memory, and it is seen whether they can. Of a
    baseline one without calls as well: a kernel that has never run is loaded first, which no stream at the gate allows.
    """
    if not asked.judged:
        asked.trial.guarded(asked.side, lambda: asked.worker.lap(1, asked.deadline_s, WARM | DRY))
    if not asked.way.read:
        return
    if not asked.worker.board.read_pieces():
        asked.way.copying("there is no memory for inputs of its own")
        return
    asked.trial.guarded(asked.side, lambda: asked.worker.lap(asked.count, asked.deadline_s, asked.bits))
    _refused(asked)


def _refused(asked: _Asked) -> bool:
    """Whether it raised on inputs that lie elsewhere than those it was prepared for, which is no wrong output."""
    refused = asked.way.read and bool(asked.worker.board.stats[REFUSED])
    if refused:
        asked.way.copying("it works on no other inputs than those it was prepared for")
    return refused


def _confirmed(trial: Trial) -> bool:
    """Whether the shim's clock says the same as the device alone, so that no host is in its ratio."""
    own, alone = _own_s(trial), trial.result.device.alone
    if min(own.values()) <= 0:
        return False
    claimed, seen = (math.log(s[BASELINE] * s[AGAIN]) / 2 - math.log(s[CANDIDATE]) for s in (own, alone))
    return abs(claimed - seen) <= CONFIRMED


def _own_s(trial: Trial) -> dict[int, float]:
    """Seconds per call that each side's own clock says, in usual rounds."""
    rounds = trial.result.rounds
    return {side: statistics.median(own for at, _, own, _ in rounds if at == side) for side in SIDES}


def _both(trial: Trial, counts: dict[int, int], gated: bool) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds per call of each side in so long rounds, in rounds of one where there is a gain, by the own clocks."""
    wanted = trial.bench.options.protections.alone and max(counts.values()) > 1
    while True:
        many, own = _series(trial, counts, gated)
        ways = _ways(trial)
        gains = many[CANDIDATE] < GAIN * max(many.values())
        single = _series(trial, dict.fromkeys(SIDES, 1), gated, single=True)[0] if wanted and gains else {}
        if ways == _ways(trial):
            return many, single, own


def _ways(trial: Trial) -> list[tuple[bool, bool]]:
    """How both programs are asked for rounds now."""
    return [(way.read, way.gated) for way in trial.bench.ways.values()]


def _series(trial: Trial, counts: dict[int, int], gated: bool, single: bool = False) -> tuple[Seconds, Seconds]:
    """Seconds per call of each side, by the parent's clock and by their own: the median of some rounds, by turns.

    gated: where that is possible. single: these are rounds of one call, of which nothing but what sides differ by can
    be known, so they may even be below zero.

    Where a baseline cannot wait at the gate nobody does: its host would be compared with the candidate's device.
    """
    bench, rounds = trial.bench, dict[int, list[tuple[float, float]]]((side, []) for side in SIDES)
    ways = {side: bench.ways[side == CANDIDATE] for side in SIDES}
    begins = cache(partial(_beginning, trial))
    while short := [side for side in SIDES if len(rounds[side]) < (SINGLES if single else ROUNDS)]:
        for side in bench.draw.sample(short, len(short)):
            way = ways[side]
            if way.gated and not trial.workers[side].board.stats[WAITS]:
                way.openly("the driver knows no gate")
            before = _ways(trial)
            kind = gated and way.gated and ways[BASELINE].gated
            count = min(counts[side], way.most) if kind else counts[side]
            asked = _Asked(trial, side, way, kind, count, single)
            seconds = _seconds(asked, begins(kind))
            if kind and seconds is not None and not single and _too_short(asked, seconds * asked.count):
                counts[side], seconds = min(math.ceil(ROUND_S / seconds), asked.capacity), None
                _warm_up(_Asked(trial, side, way, False, counts[side]))
            if before != _ways(trial):
                for one in rounds.values():
                    one.clear()
            elif seconds is not None:
                rounds[side].append((seconds, asked.own_s))
    found, own = ({side: statistics.median(row[at] for row in rows) for side, rows in rounds.items()} for at in (0, 1))
    if not ways[BASELINE].read and not single:  # its copies would make it look slow; its own clock can be trusted
        found |= {side: own_s for side, own_s in _own_s(trial).items() if side != CANDIDATE}
    return found, own


def _beginning(trial: Trial, gated: bool) -> float:
    """What a round of a baseline costs beyond its calls, which are a stand-in here: a kernel that waits."""
    found: list[float] = []
    for turn in range(3 * BEGINNINGS):
        side = (BASELINE, AGAIN)[turn % 2]
        asked = _Asked(trial, side, Way(bool(trial.workers[side].board.read_pieces())), gated, 1)
        trial.idle(trial.bench.verifier.ask("idle")["probe_s"])
        lap = trial.guarded(side, partial(_let_go, asked, DRY))
        if lap is not None and not trial.is_busy(asked.probe_s):
            found.append(lap.elapsed_s - lap.durations_ns[0] / 1e9)
        if len(found) == BEGINNINGS:
            break
    return min(found, default=0.0)


def _seconds(asked: _Asked, beginning_s: float) -> float | None:
    """Seconds per call of one round; None where it does not count, or not in that way. Raises Judged."""
    trial, way, count = asked.trial, asked.way, asked.count
    trial.bench.ask("stage", sides=[trial.first + asked.side], count=count, seed=trial.seed())
    lap: Lap | None = trial.guarded(asked.side, partial(_gated if asked.gated else _openly, asked))
    if lap is None:
        return None
    if asked.judged and not _right(asked):
        return None
    if not asked.judged and trial.is_busy(asked.probe_s) and way.void <= MOST_VOID:
        way.void += 1  # somebody else's work was in it
        return None
    asked.own_s, net_s = lap.durations_ns[0] / 1e9 / count, lap.elapsed_s - beginning_s
    return net_s if asked.single else max(net_s, LEAST_NET * lap.elapsed_s) / count


def _too_short(asked: _Asked, net_s: float) -> bool:
    """Whether a round was so short that its ends are too large a part of it, and need not have been."""
    if net_s >= LEAST_S or asked.count >= asked.capacity:
        return False
    if asked.count >= asked.way.most and asked.judged:
        asked.way.openly("too few of its calls fit into its stream")
    return asked.count < asked.way.most or asked.judged


def _right(asked: _Asked) -> bool:
    """Whether the outputs are what they should be. Raises Judged where there is no other way to ask for them."""
    trial, way = asked.trial, asked.way
    answer = trial.compare(asked.side, sample_calls(asked.count, COMPARED, trial.bench.draw))
    if not answer["failure"]:
        return True
    if way.read:
        way.copying(f"without copies {answer['failure']}")
    elif asked.gated:
        way.openly(f"behind the gate {answer['failure']}")
    else:
        trial.refuse(asked.side, answer)
    return False


def _gated(asked: _Asked) -> Lap | None:
    """One round behind the gate; None where that cannot be, or it does not count."""
    said_no = False

    def pour() -> bool:
        nonlocal said_no
        said_no = _refused(asked) or not asked.reached() or not asked.poured()
        return not said_no

    lap = _let_go(asked, 0, pour)
    if lap is None and not said_no:
        asked.way.void += asked.single  # it came to wait there before
        if not asked.single or asked.way.void > MOST_VOID:
            asked.way.fewer(asked.count)
    return lap


def _openly(asked: _Asked) -> Lap | None:
    """One round without the gate; None where that cannot be, or it does not count.

    The outputs have to lie where those of the last round lay: they must be taken at once when the answer comes.
    """
    if not asked.reached() or not asked.poured():
        return None
    before = asked.addresses()
    lap = _let_go(asked)
    if lap is not None and (_refused(asked) or (asked.way.read and asked.judged and before != asked.addresses())):
        asked.way.void += 1
        if asked.way.read and asked.way.void > MOST_VOID:
            asked.way.copying("its outputs lie elsewhere in each round")
            asked.way.void = 0
        return None
    return lap


def _let_go(asked: _Asked, bits: int = 0, pour: Callable[[], bool] | None = None) -> Lap | None:
    """The round itself. pour: writes the inputs when the calls wait at the gate. Raises WorkerGone."""
    trial, worker, patience_s = asked.trial, asked.worker, PATIENCE_S + 5 * asked.trial.call_s[asked.side] * asked.count

    def ready() -> bool:
        if found := pour is None or pour():
            asked.watch()
        return found

    with trial.bench.phase("gate"):
        try:
            if asked.gated:
                return worker.gated_lap(asked.count, asked.deadline_s, asked.bits | bits, patience_s, ready, asked.seen)
            ready()
            return worker.watched_lap(asked.count, asked.deadline_s, asked.bits | bits, asked.seen)
        finally:
            if asked.watched:  # it will not answer any more, or has before it was asked
                worker.close()
                with suppress(BenchmarkError):  # or it would take the place of what ended the round
                    asked.seen()
