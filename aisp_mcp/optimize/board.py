"""From the log of an optimisation to its board, its stop and its best. Pure functions; these rules are only here.

The largest of many noisy ratios is too large: it was selected for luck as well as for merit. So a first verdict
`faster` is provisional, and only candidates that are measured again, in fresh processes on fresh inputs, can be called
best. At most FINALISTS are. One is confirmed by `faster` again, with the lower end of its interval above 1, at a level
at which all second measurements together confirm one of identical programs in at most FALSE_BEST of all optimisations.
The best is the first confirmed one in the order of the first measurements; its ratio is the second one, for which it
was not selected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.optimize.records import Board, BoardRow, Budget, Started, State, Stop, Submission
from aisp_mcp.runs.changes import changes
from aisp_mcp.runs.changes.records import ChangeVerdict

FALSE_BEST = 0.01
FINALISTS = 3


def submissions(records: Iterable[dict[str, Any]]) -> list[Submission]:
    """The candidates of a log, by number."""
    facts: dict[int, dict[str, Any]] = {}
    for record in records:
        if "number" in record:
            fields = {name: value for name, value in record.items() if name not in ("kind", "prev")}
            facts.setdefault(record["number"], {}).update(fields)
    return [Submission.model_validate(fact) for fact in facts.values()]


def improvements(submitted: Sequence[Submission]) -> list[int]:
    """Numbers of those that were faster than the baseline, and than the previous best, beyond noise."""
    best: Comparison | None = None
    numbers = []
    for submission in submitted:
        if submission.comparison is None or submission.comparison.verdict is not Verdict.FASTER:
            continue
        if best is None or changes.change(best, submission.comparison).verdict is ChangeVerdict.FASTER:
            best = submission.comparison
            numbers.append(submission.number)
    return numbers


def candidates_left(submitted: Sequence[Submission], budget: Budget) -> int:
    """Candidates that are still accepted. One that could not be measured does not count, one being measured does."""
    return max(0, budget.candidates - sum(submission.failure is None for submission in submitted))


def stop(submitted: Sequence[Submission], budget: Budget, elapsed_s: float, finished: bool = False) -> Stop | None:
    """The first reason to end. Only candidates with a verdict count against patience."""
    last = max(improvements(submitted), default=0)
    ended = [submission for submission in submitted if submission.comparison]
    reasons: list[tuple[bool, Stop]] = [
        (finished, "finished"),
        (not candidates_left(submitted, budget), "candidates"),
        (elapsed_s >= 60 * budget.minutes, "minutes"),
        (sum(submission.number > last for submission in ended) >= budget.patience, "patience"),
    ]
    return next((reason for true, reason in reasons if true), None)


def finalists(submitted: Sequence[Submission]) -> list[Submission]:
    """The candidates to measure again, largest proven gain first."""
    faster = [
        submission
        for submission in submitted
        if submission.comparison is not None and submission.comparison.verdict is Verdict.FASTER
    ]
    return sorted(faster, key=lambda submission: _proven(submission.comparison), reverse=True)[:FINALISTS]


def best(submitted: Sequence[Submission]) -> int | None:
    """Number of the confirmed candidate that led by first measurements."""
    return next((finalist.number for finalist in finalists(submitted) if finalist.confirmed), None)


def confirm(chosen: Sequence[Submission], again: Mapping[int, Comparison]) -> dict[int, bool]:
    """Number → True if the second measurement proves its gain; a missing one proves nothing."""
    return {
        submission.number: submission.number in again and is_confirmed(again[submission.number], len(chosen))
        for submission in chosen
    }


def is_confirmed(second: Comparison, tries: int) -> bool:
    """Return True if a second measurement alone proves a gain, given the number of tries."""
    if second.verdict is not Verdict.FASTER:
        return False
    estimate = changes.estimate(second)
    if estimate is None:
        return False
    value, error, df = estimate
    return value - stats.t_quantile(1 - FALSE_BEST / tries, df) * error > 0


def board(started: Started, submitted: Sequence[Submission], now: float, finished: bool = False) -> Board:
    """The state at UTC second `now`."""
    improved = set(improvements(submitted))
    rows = [_row(submission, submission.number in improved) for submission in submitted]
    order = {submission.number: _rank(submission) for submission in submitted}
    leader = next((finalist.number for finalist in finalists(submitted) if finalist.confirmed is not False), None)
    first = best(submitted)
    left = max(0.0, 60 * started.budget.minutes - (now - started.at))
    return Board(
        session=started.id,
        target=started.target,
        workspace=started.workspace,
        rows=sorted(rows, key=lambda row: order[row.number], reverse=True),
        best=first,
        provisional=None if first else leader,
        stop=stop(submitted, started.budget, now - started.at, finished),
        candidates_left=candidates_left(submitted, started.budget),
        seconds_left=left,
        note=_note(first, leader, finished),
    )


def _rank(submission: Submission) -> tuple[bool, float]:
    return bool(submission.confirmed), _proven(submission.again or submission.comparison)


def _proven(comparison: Comparison | None) -> float:
    """The lower end of the interval: a gain by luck is also less certain."""
    return (
        comparison.interval.low
        if comparison and comparison.interval and math.isfinite(comparison.interval.low)
        else 0.0
    )


def _row(submission: Submission, improved: bool) -> BoardRow:
    shown = submission.again or submission.comparison
    sentence = shown.sentence if shown else submission.failure or "being measured, or its job was ended"
    return BoardRow(
        number=submission.number,
        state=_state(submission),
        verdict=shown.verdict if shown else None,
        ratio=shown.ratio if shown else None,
        interval=shown.interval if shown else None,
        noise_floor=shown.noise_floor if shown else None,
        of_peak=shown.peak.share if shown and shown.peak else None,
        headroom=shown.peak.headroom if shown and shown.peak else None,
        improved=improved,
        copied_from=submission.copied_from,
        sentence=sentence,
        sha256=submission.sha256,
        run_id=submission.again_run_id or submission.run_id,
    )


def _state(submission: Submission) -> State:
    if submission.confirmed is not None:
        return "confirmed" if submission.confirmed else "not_confirmed"
    if submission.failure:
        return "failed"
    if submission.comparison is None:
        return "measuring"
    return "provisional" if submission.comparison.verdict is Verdict.FASTER else "judged"


def _note(first: int | None, leader: int | None, finished: bool) -> str:
    if first:
        return f"Candidate {first} was measured again and confirmed; its ratio is that of the second measurement."
    if finished:
        return "No candidate was confirmed: nothing was shown to be faster than the baseline."
    if leader:
        return f"Candidate {leader} leads provisionally, possibly by luck. finish measures it again."
    return "No candidate is faster so far."
