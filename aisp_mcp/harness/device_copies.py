"""Whether a candidate on a GPU pays for the copies that are subtracted from its rounds, of inputs and of outputs.

As in paid.py: some rounds are asked for without them, and what its timed rounds do not show above these was not paid.
Inputs lie in memory of the worker's own, into which the verifier writes them; outputs stay where the worker's allocator
puts them, and the verifier reads them there when the worker stands still. What the copies cost is known from rounds
without calls, so the candidate alone is asked.

Flushes stay in these rounds, so that short kernels do not wait for their host. Who leaves them out there looks as if it
had paid for copies; so others have no flushes either, and what the first do not show above these is owed, too.
"""

from __future__ import annotations

import statistics
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.harness.layout import READ_CALLS
from aisp_mcp.harness.paid import COMPARED, NEGLIGIBLE, SLACK
from aisp_mcp.harness.shim import READ, WARM
from aisp_mcp.harness.timing import CANDIDATE, PAID, Overhead, sample_calls
from aisp_mcp.harness.workers import Lap

if TYPE_CHECKING:
    from aisp_mcp.harness.trial import Trial

# Rounds of each kind, more than the least where it seems not to pay; one before them does not count, because outputs
# that all stay alive need new memory.
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
CLEARED = 0.25  # of a call, what both clocks may be apart by in any case: no more is conceded


@dataclass
class Shown:
    """What the candidate's rounds took per call, seconds, beyond what a round costs: timed, without copies (read), and
    without copies and flushes (bare).

    copies_s, flush_s: what is subtracted for them; doubt_s: how well that is known. call_s: a call without anything
    around it, at most. why: why no more was seen, if anything went wrong.
    """

    copies_s: float
    flush_s: float
    doubt_s: float
    call_s: float
    timed: list[float]
    read: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    why: str = ""

    @property
    def negligible(self) -> bool:
        """Whether the copies are so little beside a call that who spares them gains no more."""
        return self.copies_s <= NEGLIGIBLE * max(self.call_s, 0.0)

    @property
    def told(self) -> bool:
        """Whether the rounds tell anything. Some candidates are slower on inputs they were not prepared for."""
        enough = min(len(self.read), len(self.bare)) >= LEAST_ROUNDS
        return not self.why and enough and min(self.read) <= min(self.timed)

    @property
    def paid(self) -> bool:
        """Whether nothing is missing."""
        return self.told and self.copies_missing_s() == self.flush_missing_s() == 0.0

    def copies_missing_s(self) -> float:
        """Seconds of copies per call that timed rounds do not show, beyond what is conceded.

        The least of the rounds of each kind counts. What disturbs timed rounds the candidate pays for, and what
        disturbs the others speaks against it: so its own scatter is no reason to concede more.
        """
        call_s = max(self.call_s, 0.0)
        conceded_s = min(SLACK * call_s + self.doubt_s, CLEARED * call_s)
        return max(self.copies_s - (min(self.timed) - min(self.read)) - conceded_s, 0.0)

    def flush_missing_s(self) -> float:
        """Seconds of a flush per call that rounds without copies do not show; none where it is a quarter or less."""
        missing_s = self.flush_s - (min(self.read) - min(self.bare))
        return missing_s if missing_s > (1 - PAID) * self.flush_s else 0.0


def without_copies(trial: Trial, cost: Overhead, unpaid_s: dict[int, float]) -> Overhead:
    """The cost of the replicate's rounds with what rounds without copies tell of it. Raises Judged.

    unpaid_s: what each side has not paid of the flushes, seconds per call. What the candidate has not paid of anything
    takes its place there.
    """
    guard = trial.bench.options.protections
    if not (guard.alone and guard.contract) or trial.bench.opened["goal"] == "memory":
        return cost
    rounds = [(own, lap) for side, _, own, lap in trial.result.rounds if side == CANDIDATE]
    timed = [(lap.elapsed_s - cost.fixed_s) / lap.count for _, lap in rounds]
    # Its own clock says more where the parent's is coarse, but no more than its rounds leave beside the flush.
    own_s = min(statistics.median(own for own, _ in rounds), min(timed) - cost.flush_s)
    call_s = max(min(timed) - cost.per_call_s, own_s)
    shown = Shown(cost.copies_s, cost.flush_s, cost.uncertain_s, call_s, timed)
    spared: float | None = 0.0
    if not shown.negligible:
        _ask(trial, cost, shown)
        spared = min(shown.copies_missing_s() / cost.copies_s, 1.0) if shown.told else None
    if shown.told:
        flush_s = max(unpaid_s.get(CANDIDATE, 0.0), shown.flush_missing_s())
        unpaid_s[CANDIDATE] = flush_s + shown.copies_missing_s()
    trial.bench.log.append("copies", replicate=trial.result.index, **vars(shown), spared=spared)
    return replace(cost, spared=spared)


def _ask(trial: Trial, cost: Overhead, shown: Shown) -> None:
    """Rounds of the candidate of both kinds by turns, verified. Raises Judged."""
    try:
        _reach(trial, shown)
        if shown.why:
            return
        for turn in range(1 + MOST_ROUNDS):
            for bits, found in ((READ, shown.read), (READ | WARM, shown.bare)):
                per_call_s = _round(trial, cost, shown, bits)
                if shown.why:
                    return
                if turn and per_call_s is not None:
                    found.append(per_call_s)
            if shown.paid:
                return
    finally:
        with suppress(BenchmarkError):  # or it would take the place of what ended the rounds
            trial.bench.ask("reach", side=trial.first + CANDIDATE, pieces=[])


def _reach(trial: Trial, shown: Shown) -> None:
    """Have the verifier open what the worker names by now."""
    pieces = trial.workers[CANDIDATE].board.read_pieces()
    if not trial.bench.ask("reach", side=trial.first + CANDIDATE, pieces=pieces)["own"]:
        shown.why = "its memory cannot be reached"


def _round(trial: Trial, cost: Overhead, shown: Shown, bits: int) -> float | None:
    """Seconds per call of one verified round; None where they are not known. Leaves in `why` what makes more useless.

    Raises Judged.
    """
    worker, side = trial.workers[CANDIDATE], trial.first + CANDIDATE
    count = min(trial.count(CANDIDATE), READ_CALLS)
    trial.fill({CANDIDATE: count}, own=True)
    lap = _lap(trial, count, shown, bits)
    if not shown.why:
        _reach(trial, shown)  # outputs may have taken new memory
    if shown.why:
        return None
    addresses = list(worker.board.addresses[: count * len(worker.board.layout.outputs)])
    if not trial.bench.ask("fetch", side=side, addresses=addresses)["whole"]:
        shown.why = "its outputs lie on each other, or where they cannot be reached"
        return None
    sample = sample_calls(count, COMPARED, trial.bench.draw)
    shown.why = trial.bench.ask("check", side=side, sample=sample)["failure"] or ""
    trial.guarded(CANDIDATE, worker.refuse_work_outside)
    return None if lap is None else (lap.elapsed_s - cost.fixed_s) / count


def _lap(trial: Trial, count: int, shown: Shown, bits: int) -> Lap | None:
    """One such round; None where the device still worked behind its answer: what it took is not known. Raises Judged.

    A candidate that works on the inputs it was prepared for and on no others may raise. That is no wrong output: it
    is said in `why`, and the worker is gone.
    """
    late = dict(trial.result.late)
    lap = trial.lap_or_end(CANDIDATE, count, bits)
    if lap is None:
        shown.why = "it works on no other inputs than those it was prepared for"
    found, trial.result.late = trial.result.late, late
    return None if found != late else lap
