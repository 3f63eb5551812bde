"""Rows of a run in a pipeline's terms: passed, failed, broken, or not judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.store.records.run import Run


class State(Enum):
    """State of one benchmark. UNJUDGED covers skips and verdicts prevented by noise: neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"
    UNJUDGED = "unjudged"


@dataclass(frozen=True)
class Row:
    """One benchmark. word: the verdict or outcome; low, high: the interval of ratio; seconds: wall time, 0 unknown.

    at_least: the ratio is a lower bound. provisional: the verdict rests on one replicate.
    """

    target: str
    state: State
    word: str
    sentence: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    seconds: float = 0.0
    at_least: bool = False
    provisional: bool = False


VERDICTS = {
    Verdict.FASTER: State.PASSED,
    Verdict.SAME: State.PASSED,
    Verdict.INCONCLUSIVE: State.UNJUDGED,
    Verdict.SLOWER: State.FAILED,
    Verdict.INCORRECT: State.FAILED,
    Verdict.INVALID: State.FAILED,
}


def of_run(run: Run, fail_inconclusive: bool = False) -> list[Row]:
    """Comparisons, skips and failures of a run, in its order. fail_inconclusive: inconclusive verdicts are failures.

    A provisional gain is not judged: nothing passes on one replicate.
    """
    rows = [_compared(comparison, run.is_provisional(comparison), fail_inconclusive) for comparison in run.comparisons]
    rows += [Row(skip.target, State.UNJUDGED, "skipped", f"{skip.code}: needs {skip.missing}") for skip in run.skipped]
    return rows + [
        Row(failure.target, State.BROKEN, "failed", f"{failure.code}: {failure.message}") for failure in run.failed
    ]


def count(rows: Sequence[Row], *states: State) -> int:
    """Rows in any of these states."""
    return sum(row.state in states for row in rows)


def _compared(comparison: Comparison, provisional: bool, fail_inconclusive: bool) -> Row:
    state = VERDICTS[comparison.verdict]
    if provisional and state is State.PASSED:
        state = State.UNJUDGED
    if state is State.UNJUDGED and fail_inconclusive:
        state = State.FAILED
    return Row(
        target=comparison.label,
        state=state,
        word=comparison.verdict.value,
        sentence=comparison.sentence,
        ratio=comparison.ratio,
        low=comparison.interval.low if comparison.interval else None,
        high=comparison.interval.high if comparison.interval else None,
        noise_floor=comparison.noise_floor,
        seconds=comparison.seconds,
        at_least=comparison.at_least,
        provisional=provisional,
    )
