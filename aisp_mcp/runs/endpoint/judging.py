"""The verdict on two servers from the ratios of every metric under every load. Pure functions.

A change of a server moves several figures at once, and often in opposite directions. Each row, a metric under a load,
has been judged alone. Here the rows become one word:

    a row is a gain or a loss     if the row's own verdict says so and, for metrics other than the goal, it exceeds the
                                  limit: what the goal may cost elsewhere
    gains and losses              trade-off
    losses only                   worse
    a gain of the goal, no loss   better, unless some other row may have lost more than the limit: inconclusive
    neither                       same if every row of the goal is the same; otherwise inconclusive
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.runs.endpoint.records import MetricRatio
from aisp_mcp.server.text import numbers

LIMIT = 0.05  # chosen: smaller losses elsewhere seldom matter to those who ask for the goal
FAILED = "failed"


class Word(StrEnum):
    """The verdict on two servers. incorrect: they did different work."""

    BETTER = "better"
    WORSE = "worse"
    TRADE_OFF = "trade-off"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    INCORRECT = "incorrect"


PASSED = (Word.BETTER, Word.SAME)


@dataclass(frozen=True)
class Decision:
    """The word and the rows behind it. open_rows: losses beyond the limit that are neither proven nor ruled out."""

    word: Word
    gains: Sequence[MetricRatio] = ()
    losses: Sequence[MetricRatio] = ()
    open_rows: Sequence[MetricRatio] = ()


def decide(rows: Sequence[MetricRatio], goal: str, limit: float = LIMIT) -> Decision:
    """Decide by the table above."""
    spoiled = {row.load: row.verdict for row in rows if row.metric == FAILED}
    counted = [row for row in rows if row.metric == FAILED or spoiled.get(row.load) is not _opposite(row.verdict)]
    gains = [row for row in counted if row.verdict is Verdict.FASTER and _matters(row, goal, limit)]
    losses = [row for row in counted if row.verdict is Verdict.SLOWER and _matters(row, goal, limit)]
    unproven = [row for row in rows if row.verdict is Verdict.INCONCLUSIVE and row.interval is not None]
    open_rows = [row for row in unproven if row.interval is not None and row.interval.low < 1 - limit]
    aims = [row for row in rows if row.metric == goal]
    if losses:
        word = Word.TRADE_OFF if gains else Word.WORSE
    elif any(row in gains for row in aims):
        suspected = any(row.ratio is not None and row.ratio < 1 - limit for row in open_rows)
        word = Word.INCONCLUSIVE if suspected else Word.BETTER
    else:
        word = Word.SAME if aims and all(row.verdict is Verdict.SAME for row in aims) else Word.INCONCLUSIVE
    return Decision(word, gains, losses, open_rows)


def _opposite(verdict: Verdict) -> Verdict | None:
    """The verdict that failures of one side take from the rows of the same load: those answered had less company."""
    return {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(verdict)


def _matters(row: MetricRatio, goal: str, limit: float) -> bool:
    if row.metric in (goal, FAILED) or row.ratio is None:
        return True
    return row.ratio < 1 - limit or row.ratio > 1 + limit


def sentence(decision: Decision, rows: Sequence[MetricRatio], goal: str, limit: float = LIMIT) -> str:
    """The decision and its figures in one line."""
    word = decision.word
    aims = [row for row in rows if row.metric == goal]
    if word in (Word.TRADE_OFF, Word.WORSE):
        moved = [*_extremes(decision.gains, goal), *_extremes(decision.losses, goal)]
        return f"{word}: {_listed(moved)}"
    open_text = f"a loss of more than {limit:.0%} is not ruled out in {{}}".replace("%", " %")
    if word is Word.BETTER:
        text = (
            f"better for {goal}: {_listed(_extremes(decision.gains, goal))}; no loss above {100 * limit:g} % is shown"
        )
    elif word is Word.SAME:
        text = f"same for {goal}: {_listed(aims)}"
    else:
        text = f"inconclusive for {goal}: {_listed(aims) or 'no figures'}"
    unclear = sorted(decision.open_rows, key=lambda row: row.interval.low if row.interval else 1.0)[:2]
    return f"{text}; {open_text.format(_listed(unclear))}" if unclear else text


def _extremes(rows: Sequence[MetricRatio], goal: str) -> list[MetricRatio]:
    """The largest change of each metric, the goal first."""
    largest = dict[str, MetricRatio]()
    for row in sorted(rows, key=_size, reverse=True):
        largest.setdefault(row.metric, row)
    return sorted(largest.values(), key=lambda row: row.metric != goal)


def _size(row: MetricRatio) -> float:
    return max(row.ratio, 1 / row.ratio) if row.ratio else float("inf")


def _listed(rows: Sequence[MetricRatio]) -> str:
    """Metric and ratio of each row; a load that all share is named once."""
    if len({row.load for row in rows}) == 1:
        return f"{', '.join(map(_amount, rows))} at {rows[0].load}"
    return ", ".join(f"{_amount(row)} at {row.load}" for row in rows)


def _amount(row: MetricRatio) -> str:
    if row.metric == FAILED:
        return row.sentence
    return f"{row.metric} {numbers.ratio(row.ratio)}" if row.ratio else f"{row.metric} unknown"
