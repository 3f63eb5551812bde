"""Replicates of a benchmark to a verdict, by the harness's rules."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aisp_mcp.front.pytest_plugin.rounds import Replicate
from aisp_mcp.judge.presets import Role
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.verdict.verdict import judge as judge_ratios

NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Row:
    """One benchmark. seconds: per call, of the base and of this tree; fails: the session fails for it."""

    name: str
    verdict: str
    sentence: str
    seconds: tuple[float, ...] = ()
    fails: bool = False
    notes: tuple[str, ...] = ()


def judge(
    name: str, measured: Sequence[Replicate | str], margin: float | None, with_base: bool, test_changed: bool
) -> Row:
    """The row of one benchmark. with_base: the baseline is another commit, and not this one again."""
    problem = next((each for each in measured if isinstance(each, str)), None)
    replicates = [each for each in measured if isinstance(each, Replicate)]
    if problem is not None or not replicates:
        return Row(name, NOT_JUDGED, problem or "nothing was measured")
    outcome = judge_ratios([each.log_ratio for each in replicates], [each.noise for each in replicates], margin=margin)
    roles = (Role.BASELINE, Role.CANDIDATE)
    medians = [statistics.median(each.seconds[role] for each in replicates) for role in roles]
    if not with_base:
        floor = (
            f"noise floor {100 * outcome.noise_floor:.2g} %" if outcome.noise_floor is not None else outcome.sentence
        )
        return Row(name, "measured", floor, (medians[1],))
    notes = ["the test's own file differs at the base"] if test_changed else []
    if any(each.changed for each in replicates):
        notes.append("the result differs from the base's")
    return Row(name, outcome.verdict, outcome.sentence, tuple(medians), outcome.verdict is Verdict.SLOWER, tuple(notes))


def confirmed(first: Row, second: Row) -> Row:
    """A slowdown after a second look: it fails only if both show it."""
    if second.fails:
        return replace(first, notes=(*first.notes, f"second look: {second.sentence}"))
    sentence = f"{first.sentence}; a second look did not confirm it: {second.sentence}"
    return replace(first, verdict=Verdict.INCONCLUSIVE, sentence=sentence, fails=False)
