"""Detect candidates that skip the output copies whose cost is subtracted from their rounds, on a CPU.

The copies happen in the worker's own process, which may leave them out. So some rounds are run without copies, verified
like any other: only the copies that the candidate's timed rounds show above these are subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aisp_mcp.judge.evidence import Overhead, RoundTiming
from aisp_mcp.judge.parent.processes import process_memory
from aisp_mcp.judge.parent.processes.gone import WorkerGone
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.protocol.words import NO_COPY
from aisp_mcp.judge.verdict.estimators import MAX_SKIPPED_COPIES

MIN_ROUNDS, MAX_ROUNDS = 2, 3  # without copies, per role; more than the minimum where copies seem to be missing
MIN_SINGLES, MAX_SINGLES = 4, 6  # rounds of one call
COMPARED = 6  # calls per round without copies, at random: skipping a tenth of them is found in half of the rounds
NEGLIGIBLE = 0.03  # of a round: a candidate that skips so little gains no more
SLOW_COPY = 4e9  # bytes per second
SLACK = 0.03  # of a call: difference of two measurements of it that raises no suspicion
MIN_ERROR_FACTOR = {"wall": 1.0, "cpu": 0.25}  # of the scatter: error of the least of some rounds, by clock
CLEARED = 0.08  # of a call: with more doubt no candidate is cleared


class CallCost(NamedTuple):
    """Seconds per call of one round, on the parent's clock and of the processor."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, timing: RoundTiming) -> CallCost:
        """Of one round."""
        return cls(timing.elapsed_s / timing.count, timing.account.cpu_s / timing.count)


Costs = dict[Role, list[CallCost]]
Column = dict[Role, list[float]]


def skipped_copies(timed: Costs, without: Costs, max_s: float, singles: Costs | None = None) -> float | None:
    """The share of the copies that the candidate's timed rounds do not show; None where that is unknown.

    without: rounds without copies. The baselines' timed rounds show the cost of copies above theirs, the least of each,
    but no more than max_s, the seconds per call that are subtracted: where calls are long they scatter by more. Wall
    time and processor time, which neighbours do not disturb, are both asked, and the answer that favours the candidate
    less counts: a thread beside the calls bends the one, a process that ends in time the other. Where both scatter by
    too much no candidate is cleared.

    singles: where `without` are rounds of one call, such rounds with copies. What a call costs more in these than among
    others is taken from the candidate's own, but no more than from the baselines': its timed rounds count, and not
    rounds that it may make as long as it likes.
    """
    evidence = [
        _CopyEvidence.of(_column(timed, name), _column(without, name), _column(singles or timed, name), max_s, factor)
        for name, factor in MIN_ERROR_FACTOR.items()
    ]
    found = max(one.missing() for one in evidence)
    cleared = any(one.clears(max_s) for one in evidence)
    return 1.0 if found > MAX_SKIPPED_COPIES else found if found or cleared else None


@dataclass(frozen=True)
class _CopyEvidence:
    """Copies as rounds show them, seconds per call on one clock: due by the baselines, paid by the candidate.

    doubt_s: difference of due_s and paid_s that raises no suspicion. call_s: the candidate's least, with copies.
    """

    due_s: float
    paid_s: float
    doubt_s: float
    call_s: float

    @classmethod
    def of(cls, timed: Column, without: Column, singles: Column, max_s: float, factor: float) -> _CopyEvidence:
        """From the rounds of each role; factor: share of their scatter by which the least of them can be wrong."""
        least, floor, rest = (_least(costs) for costs in (timed, without, singles))
        extra = max(*(rest[role] - least[role] for role in BASELINES), 0.0)
        rest[Role.CANDIDATE] = min(rest[Role.CANDIDATE], least[Role.CANDIDATE] + extra)
        due, again, paid = (rest[role] - floor[role] for role in Role)
        doubt = abs(due - again) / 2 + _min_doubt(timed, factor)
        return cls(min((due + again) / 2, max_s), paid, doubt, least[Role.CANDIDATE])

    def clears(self, max_s: float) -> bool:
        """True if nothing missing means that all was paid: the baselines are seen to pay, or there is little to pay."""
        least_s = CLEARED * self.call_s
        return self.doubt_s < least_s and (self.due_s > self.doubt_s or max_s < least_s)

    def missing(self) -> float:
        """The share of what is due that was not paid, beyond doubt."""
        short_s = max(self.due_s - self.paid_s - self.doubt_s, 0.0)
        return min(short_s / self.due_s, 1.0) if self.due_s > self.doubt_s else 0.0


def hopeless(timed: Costs, max_s: float) -> bool:
    """True if timed rounds scatter so much that rounds without copies could show nothing about max_s seconds a call."""
    columns = [(_column(timed, name), factor) for name, factor in MIN_ERROR_FACTOR.items()]
    return all(_min_doubt(one, factor) >= max(CLEARED * min(one[Role.CANDIDATE]), max_s) for one, factor in columns)


def _least(costs: Column) -> dict[Role, float]:
    return {role: min(values) for role, values in costs.items()}


def _min_doubt(timed: Column, factor: float) -> float:
    """Seconds of a call that are in doubt whatever other rounds show."""
    scatter = max(sorted(timed[role])[len(timed[role]) // 2] - min(timed[role]) for role in BASELINES)
    return SLACK * min(timed[Role.CANDIDATE]) + factor * scatter


def _column(costs: Costs, name: str) -> Column:
    return {role: [getattr(one, name) for one in rows] for role, rows in costs.items()}


def _of_each_role() -> Costs:
    return {role: [] for role in Role}


def account_for_copies(driver: Driver, overhead: Overhead) -> Overhead:
    """The overhead of the replicate's rounds with skipped_copies, where rounds without copies can tell it.

    In these all outputs stay alive, and are read out of the frozen process. Where that destroys some, because the
    candidate returns one buffer again and again, rounds of one call take their place. Raises ComparisonAborted.
    """
    result, session = driver.result, driver.session
    guard = session.options.protections
    if not (guard.isolated_calls and guard.contract) or session.opened["goal"] == "memory":
        return overhead
    timed: Costs = {role: [CallCost.of(one.timing) for one in result.rounds if one.role is role] for role in Role}
    count = min(one.timing.count for one in result.rounds if one.role is Role.CANDIDATE)
    copy_s = sum(spec.nbytes for spec in driver.workers[Role.CANDIDATE].control.layout.outputs) / SLOW_COPY
    if max(overhead.per_call_s, copy_s) < NEGLIGIBLE * min(one.wall for one in timed[Role.CANDIDATE]):
        return replace(overhead, skipped_copies=0.0)
    if hopeless(timed, replace(overhead, skipped_copies=1.0).skipped_s(count)):
        session.log.append("restless", replicate=result.index)
        return overhead
    seen = _Rounds(timed, count)
    try:
        found = _by_long_rounds(driver, overhead, seen)
    except Overwritten:
        seen = _Rounds(timed, count)
        found = _by_single_calls(driver, overhead, seen)
    except OSError as refused:
        session.log.append("unreadable", replicate=result.index, why=str(refused))
        return overhead
    session.log.append("copies", replicate=result.index, **vars(seen), skipped_copies=found)
    without_copies_s = min(min(seen.beyond_calls), overhead.fixed_s)
    return replace(overhead, skipped_copies=found, without_copies_s=without_copies_s)


@dataclass
class _Rounds:
    """Costs of timed rounds, of rounds without copies, and of single calls with copies.

    beyond_calls: seconds that the baselines' rounds without copies took beyond their calls. count: calls of the
    candidate's shortest timed round.
    """

    timed: Costs
    count: int
    without: Costs = field(default_factory=_of_each_role)
    singles: Costs = field(default_factory=_of_each_role)
    beyond_calls: list[float] = field(default_factory=list)

    def max_s(self, overhead: Overhead) -> float:
        """Seconds per call that are subtracted from a timed round of the candidate for its copies."""
        all_skipped = replace(overhead, skipped_copies=1.0, without_copies_s=min(self.beyond_calls))
        return all_skipped.skipped_s(self.count)


class Overwritten(Exception):
    """The candidate's outputs are not what was asked for: reusing a buffer is honest, and proves nothing."""


def _by_long_rounds(driver: Driver, overhead: Overhead, seen: _Rounds) -> float | None:
    """Raises Overwritten. Outputs that all stay alive need new memory: a round that pays for it comes first."""
    found: float | None = None
    counts = driver.counts()
    driver.fill(counts)
    for role in Role:
        driver.run_round(role, counts[role], NO_COPY)
        _fetch(driver, role, counts[role])
    for turn in range(MAX_ROUNDS):
        _round(driver, driver.counts(), seen)
        found = skipped_copies(seen.timed, seen.without, seen.max_s(overhead))
        if turn + 1 >= MIN_ROUNDS and found == 0.0:
            break
    return found


def _by_single_calls(driver: Driver, overhead: Overhead, seen: _Rounds) -> float | None:
    """With copies and without by turns, so that the machine is the same for both."""
    found: float | None = None
    for turn in range(MAX_SINGLES):
        driver.fill(dict.fromkeys(Role, 1))
        for role in Role:
            seen.singles[role].append(CallCost.of(driver.run_round(role, 1)))
        _round(driver, dict.fromkeys(Role, 1), seen)
        found = skipped_copies(seen.timed, seen.without, seen.max_s(overhead), seen.singles)
        if turn + 1 >= MIN_SINGLES and found == 0.0:
            break
    return found


def _round(driver: Driver, counts: dict[Role, int], seen: _Rounds) -> None:
    """One round of each role without copies. Raises Overwritten if it has more than one call, ComparisonAborted."""
    driver.fill(counts)
    whole = {}
    for role in driver.session.random.sample(list(Role), len(Role)):
        timing = driver.run_round(role, counts[role], NO_COPY)
        seen.without[role].append(CallCost.of(timing))
        whole[role] = _fetch(driver, role, counts[role])
        if role is not Role.CANDIDATE:
            seen.beyond_calls.append(timing.elapsed_s - sum(timing.durations_ns) / 1e9)
    if (count := counts[Role.CANDIDATE]) == 1:
        driver.verify(Role.CANDIDATE, [0])
    elif not whole[Role.CANDIDATE] or driver.compare(Role.CANDIDATE, driver.sample(count, COMPARED))["failure"]:
        raise Overwritten


def _fetch(driver: Driver, role: Role, count: int) -> bool:
    """Read the outputs out of the worker; False where they overlap.

    Raises ComparisonAborted, OSError for a baseline.
    """
    worker = driver.workers[role]

    def fetched() -> bool:
        try:
            return process_memory.fetch(worker.pid, worker.control, driver.arena(role), count)
        except OSError as refused:
            if role is not Role.CANDIDATE:
                raise
            message = f"{worker.name}'s outputs do not lie where it says: {refused.strerror}"
            raise WorkerGone("unreadable", message) from refused

    return driver.guarded(role, fetched)
