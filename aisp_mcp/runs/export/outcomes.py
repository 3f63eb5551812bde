"""Rows of a run as what a pipeline asks of them: passed, failed, broken, or not judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from aisp_mcp.judge.records.run import Run
from aisp_mcp.judge.records.verdict import Comparison, Verdict


class State(Enum):
    """State of one benchmark. UNJUDGED covers skips and everything that noise hid: neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "broken"
    UNJUDGED = "unjudged"


@dataclass(frozen=True)
class Row:
    """One benchmark. word: the verdict or outcome; low, high: the interval of ratio; seconds: wall time, 0 unknown."""

    target: str
    state: State
    word: str
    sentence: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noise_floor: float | None = None
    seconds: float = 0.0


VERDICTS = {
    Verdict.FASTER: State.PASSED,
    Verdict.SAME: State.PASSED,
    Verdict.INCONCLUSIVE: State.UNJUDGED,
    Verdict.SLOWER: State.FAILED,
    Verdict.INCORRECT: State.FAILED,
    Verdict.INVALID: State.FAILED,
}


def of_run(run: Run, fail_inconclusive: bool = False) -> list[Row]:
    """Comparisons, skips and failures of a run, in its order. fail_inconclusive: inconclusive verdicts are failures."""
    rows = [_compared(comparison, fail_inconclusive) for comparison in run.comparisons]
    rows += [Row(one.target, State.UNJUDGED, "skipped", f"{one.code}: needs {one.missing}") for one in run.skipped]
    return rows + [Row(one.target, State.BROKEN, "failed", f"{one.code}: {one.message}") for one in run.failed]


def count(rows: Sequence[Row], *states: State) -> int:
    """Rows in any of these states."""
    return sum(row.state in states for row in rows)


def _compared(comparison: Comparison, fail_inconclusive: bool) -> Row:
    fails = fail_inconclusive and comparison.verdict is Verdict.INCONCLUSIVE
    return Row(
        target=comparison.label,
        state=State.FAILED if fails else VERDICTS[comparison.verdict],
        word=comparison.verdict.value,
        sentence=comparison.sentence,
        ratio=comparison.ratio,
        low=comparison.interval.low if comparison.interval else None,
        high=comparison.interval.high if comparison.interval else None,
        noise_floor=comparison.noise_floor,
        seconds=comparison.seconds,
    )
