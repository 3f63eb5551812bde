"""Whether a candidate on a GPU pays for the copies that are subtracted from its rounds, of inputs and of outputs.

As in paid.py: some rounds are asked for without them, and what its timed rounds do not show above these was not paid.
Inputs lie in memory of the worker's own, into which the verifier writes them; outputs stay where the worker's allocator
puts them, and the verifier reads them there when the worker stands still. What the copies cost is known from rounds
without calls, so the candidate alone is asked.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aisp_mcp.harness.layout import READ_CALLS
from aisp_mcp.harness.paid import COMPARED, MOST_SPARED, NEGLIGIBLE, SLACK
from aisp_mcp.harness.shim import READ
from aisp_mcp.harness.timing import CANDIDATE, Overhead, sample_calls

if TYPE_CHECKING:
    from aisp_mcp.harness.trial import Trial

LEAST_ROUNDS, MOST_ROUNDS = 3, 12  # more than the least where it seems not to pay; one before them does not count,
# because outputs that all stay alive need new memory
CLEARED = 0.25  # of a call, what both clocks may be apart by in any case: no more is conceded


@dataclass
class Shown:
    """What the candidate's rounds took per call, seconds, beyond what a round costs: timed, and without copies.

    due_s: what is subtracted for copies, and doubt_s how well that is known. call_s: a call without anything around it,
    by the clock that says more. why: why no more was seen, if anything went wrong.
    """

    due_s: float
    doubt_s: float
    call_s: float
    timed: list[float]
    read: list[float] = field(default_factory=list)
    why: str = ""

    def spared(self) -> float | None:
        """The share of the copies that timed rounds do not show; None where that cannot be told.

        The least of the rounds of either kind counts. What disturbs timed rounds the candidate pays for, and what
        disturbs the others speaks against it: so its own scatter is no reason to concede more.
        """
        if self.due_s < NEGLIGIBLE * self.call_s:
            return 0.0
        if self.why or len(self.read) < LEAST_ROUNDS:
            return None
        conceded_s = min(SLACK * self.call_s + self.doubt_s, CLEARED * self.call_s)
        missing_s = self.due_s - (min(self.timed) - min(self.read))
        share = min(max(missing_s - conceded_s, 0.0) / self.due_s, 1.0)
        return 1.0 if share > MOST_SPARED else share


def without_copies(trial: Trial, cost: Overhead) -> Overhead:
    """The cost of the replicate's rounds with what rounds without copies tell of it. Raises Judged."""
    guard = trial.bench.options.protections
    if not (guard.alone and guard.contract) or trial.bench.opened["goal"] == "memory":
        return cost
    rounds = [(own, lap) for side, _, own, lap in trial.result.rounds if side == CANDIDATE]
    timed = [(lap.elapsed_s - cost.fixed_s) / lap.count for _, lap in rounds]
    own_s = statistics.median(own for own, _ in rounds)
    shown = Shown(cost.copies_s, cost.uncertain_s, max(min(timed) - cost.per_call_s, own_s), timed)
    if shown.spared() is None:
        _ask(trial, cost, shown)
    found = shown.spared()
    trial.bench.log.append("copies", replicate=trial.result.index, **vars(shown), spared=found)
    return replace(cost, spared=found, bare_s=cost.fixed_s)


def _ask(trial: Trial, cost: Overhead, shown: Shown) -> None:
    """Rounds of the candidate without copies, verified. Raises Judged."""
    worker, side = trial.workers[CANDIDATE], trial.first + CANDIDATE
    try:
        for turn in range(1 + MOST_ROUNDS):
            if not trial.bench.ask("reach", side=side, pieces=worker.board.read_pieces())["own"]:
                shown.why = "its memory cannot be reached"
                return
            count = min(trial.count(CANDIDATE), READ_CALLS)
            trial.fill({CANDIDATE: count}, own=True)
            lap = trial.lap(CANDIDATE, count, READ)
            trial.bench.ask("reach", side=side, pieces=worker.board.read_pieces())
            addresses = list(worker.board.addresses[: count * len(worker.board.layout.outputs)])
            if not trial.bench.ask("fetch", side=side, addresses=addresses)["whole"]:
                shown.why = "its outputs lie on each other, or where they cannot be reached"
                return
            sample = sample_calls(count, COMPARED, trial.bench.draw)
            shown.why = trial.bench.ask("check", side=side, sample=sample)["failure"] or ""
            trial.guarded(CANDIDATE, worker.refuse_work_outside)
            if shown.why:
                return
            if turn:
                shown.read.append((lap.elapsed_s - cost.fixed_s) / count)
            if shown.spared() == 0.0:
                return
    finally:
        trial.bench.ask("reach", side=side, pieces=[])
