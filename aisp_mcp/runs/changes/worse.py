"""Targets whose newest verdict fell below an earlier one, each judged as a comparison of the two runs would be.

Start with `worse()`: rows of the store name the suspects, and the stored runs decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aisp_mcp.runs.changes.changes import compare_runs
from aisp_mcp.runs.changes.records import Change, ChangeVerdict
from aisp_mcp.runs.history import segments
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import OF_TARGETS, RunKind, VerdictRow

LEVELS = 60  # newest verdicts of a target that are searched for a step
JUDGED = 24  # suspects whose runs are read, largest falls first


@dataclass(frozen=True)
class Fall:
    """A target's newest verdict, an earlier one that was higher, and whether the runs prove a loss."""

    now: VerdictRow
    then: VerdictRow
    change: Change

    @property
    def proven(self) -> bool:
        """True for a regression; False if the runs were measured under different conditions."""
        return self.change.verdict is ChangeVerdict.SLOWER


def worse(ctx: Context, rows: Sequence[VerdictRow]) -> list[Fall]:
    """Proven falls, then those that could not be judged, the largest first. rows: newest first."""
    judged = [fall for now, then in _suspects(rows)[:JUDGED] if (fall := _judged(ctx, now, then))]
    return sorted(judged, key=lambda fall: not fall.proven)


def comparable(rows: Sequence[VerdictRow]) -> tuple[str, str] | None:
    """(earlier, later): the two newest runs of one kind, preset and device that share a target. rows: newest first."""
    later: dict[tuple[str, str, str, str | None], str] = {}
    for row in rows:
        key = row.target, row.kind, row.preset, row.device
        if later.setdefault(key, row.run_id) != row.run_id:
            return row.run_id, later[key]
    return None


def _suspects(rows: Sequence[VerdictRow]) -> list[tuple[VerdictRow, VerdictRow]]:
    """(newest, earlier) verdicts whose intervals do not overlap, the largest fall first.

    earlier: the last verdict of the previous level, or else the previous verdict.
    """
    series: dict[tuple[str, str, str | None, str], list[VerdictRow]] = {}
    for row in reversed(rows):
        if row.ratio and row.low and row.high and row.kind in OF_TARGETS and not row.provisional:
            series.setdefault((row.target, row.kind, row.device, row.preset), []).append(row)
    pairs = [(verdicts[-1], _earlier(verdicts)) for verdicts in series.values() if len(verdicts) > 1]
    falls = [(now, then) for now, then in pairs if (now.high or 0.0) < (then.low or 0.0)]
    return sorted(falls, key=lambda pair: (pair[0].ratio or 0.0) / (pair[1].ratio or 1.0))


def _earlier(verdicts: list[VerdictRow]) -> VerdictRow:
    recent = verdicts[-LEVELS:]
    levels = segments([row.ratio or 0.0 for row in recent])
    return recent[levels[-2][1] - 1 if len(levels) > 1 else -2]


def _judged(ctx: Context, now: VerdictRow, then: VerdictRow) -> Fall | None:
    """The fall with its judgement; None if the runs show no loss."""
    before, after = (ctx.store.run(Run, row.run_id, ctx.sees) for row in (then, now))
    changes, _ = compare_runs(before, after)
    for change in changes:
        label = f"{change.target}_{change.candidate}" if change.candidate else change.target
        same = label == now.target or now.kind is RunKind.FUNCTIONS  # two functions are a run of their own
        if same and change.verdict in (ChangeVerdict.SLOWER, ChangeVerdict.COULD_NOT_JUDGE):
            return Fall(now, then, change)
    return None
