"""From replicates of a benchmark to a verdict, by the harness's rules."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aisp_mcp.gate.policy import Look, judge_looks, log_look
from aisp_mcp.gate.workloads.rounds import BenchmarkReplicate, MissingBenchmark
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.verdict.verdict import Judgement
from aisp_mcp.judge.verdict.verdict import judge as judge_ratios

NOT_JUDGED, MISSING, MEASURED = "not judged", "missing", "measured"


@dataclass(frozen=True)
class BenchmarkRow:
    """One benchmark. seconds: per call, of the base and of this tree; fails: the session fails for it. figures: of the
    first look at two commits. processes: sets of them in that look.
    """

    name: str
    verdict: str
    sentence: str
    seconds: tuple[float, ...] = ()
    fails: bool = False
    notes: tuple[str, ...] = ()
    figures: Judgement | None = None
    processes: int = 0

    @property
    def look(self) -> Look | None:
        """The numbers by which the gate decides on further looks; None if nothing was judged."""
        figures = self.figures
        if figures is None:
            return None
        return log_look(figures.verdict, figures.ratio, figures.interval, figures.noise_floor, self.processes)


def judge(
    name: str, measured: Sequence[BenchmarkReplicate | str], margin: float | None, with_base: bool, test_changed: bool
) -> BenchmarkRow:
    """The row of one benchmark. with_base: the baseline is another commit, not a repeat of this one."""
    problem = next((each for each in measured if isinstance(each, str)), None)
    replicates = [each for each in measured if isinstance(each, BenchmarkReplicate)]
    if isinstance(problem, MissingBenchmark) and with_base:
        return BenchmarkRow(name, MISSING, problem, fails=True)
    if problem is not None or not replicates:
        return BenchmarkRow(name, NOT_JUDGED, problem or "nothing was measured")
    outcome = judge_ratios([each.log_ratio for each in replicates], [each.noise for each in replicates], margin=margin)
    roles = (Role.BASELINE, Role.CANDIDATE)
    medians = [statistics.median(each.seconds[role] for each in replicates) for role in roles]
    if not with_base:
        floor = (
            f"noise floor {100 * outcome.noise_floor:.2g} %" if outcome.noise_floor is not None else outcome.sentence
        )
        return BenchmarkRow(name, MEASURED, floor, (medians[1],))
    notes = ["the test's own file differs at the base"] if test_changed else []
    if any(each.changed for each in replicates):
        notes.append("the result differs from the base's")
    fails = outcome.verdict is Verdict.SLOWER
    return BenchmarkRow(
        name, outcome.verdict, outcome.sentence, tuple(medians), fails, tuple(notes), outcome, len(replicates)
    )


def settled(row: BenchmarkRow, looks: Sequence[Look], margin: float) -> BenchmarkRow:
    """The row after all looks: it fails only if the gate's policy calls it a regression."""
    if row.verdict != Verdict.SLOWER and len(looks) < 2:
        return row
    outcome, reason = judge_looks(looks, margin)
    fails = outcome == "regressed"
    verdict = Verdict.SLOWER if fails else Verdict.INCONCLUSIVE
    return replace(row, verdict=verdict, sentence=f"{reason}; the first: {row.sentence}", fails=fails)
