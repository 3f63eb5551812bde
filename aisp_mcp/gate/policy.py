"""The gate's policy: what the comparisons of two commits mean for the change. Pure functions.

A change fails only on a slowdown that both clocks of the first look and all further looks show. What could not be
judged is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from aisp_mcp.gate.records import GateRow, Outcome, Policy
from aisp_mcp.judge.records.run import Run
from aisp_mcp.judge.records.verdict import Comparison, Verdict

OUTCOMES: dict[Verdict, Outcome] = {
    Verdict.FASTER: "improved",
    Verdict.SAME: "unchanged",
    Verdict.SLOWER: "regressed",
    Verdict.INCONCLUSIVE: "could_not_judge",
    Verdict.INCORRECT: "wrong",
    Verdict.INVALID: "wrong",
}
LOOKS = 3  # a slowdown must show in each of them
BROKEN = (Verdict.INCORRECT, Verdict.INVALID)
ALWAYS_FAIL: tuple[Outcome, ...] = ("regressed", "wrong", "failed")
Looks = Mapping[str, Sequence[Comparison]]  # by target, the first look first


def rows(run: Run, changed_specs: set[str], looks: Looks, margin: float) -> list[GateRow]:
    """One row for each benchmark that both commits have. changed_specs: targets whose specification differs."""
    compared = [
        _row(comparison, comparison.target in changed_specs, looks.get(comparison.target, [comparison]), margin)
        for comparison in run.comparisons
    ]
    skipped = [
        GateRow(target=skip.target, outcome="could_not_judge", sentence=f"skipped: needs {skip.missing}")
        for skip in run.skipped
    ]
    failed = [
        GateRow(target=failure.target, outcome="failed", sentence=f"{failure.code}: {failure.message}")
        for failure in run.failed
    ]
    return compared + skipped + failed


def absent_rows(base_names: Sequence[str], head_names: Sequence[str]) -> list[GateRow]:
    """Rows for the benchmarks that only one of the commits has."""
    gone = [name for name in base_names if name not in head_names]
    new = [name for name in head_names if name not in base_names]
    return [
        *(GateRow(target=name, outcome="missing", sentence="The head has no such benchmark.") for name in gone),
        *(
            GateRow(target=name, outcome="new", sentence="The base has no such benchmark: nothing to compare with.")
            for name in new
        ),
    ]


def reasons(gate_rows: Sequence[GateRow], policies: Mapping[Outcome, Policy]) -> list[str]:
    """Why the change does not pass, or what to be warned of; a reason that begins with "fail" fails it."""
    every: dict[Outcome, Policy] = {**policies, **dict.fromkeys(ALWAYS_FAIL, "fail")}
    return [
        f"{every[row.outcome]}: {row.target} {row.outcome.replace('_', ' ')}: {row.sentence}"
        for row in gate_rows
        if every.get(row.outcome, "pass") != "pass"
    ]


def judge_looks(looks: Sequence[Comparison], margin: float) -> tuple[Outcome, str]:
    """The outcome of what seemed slower, and why.

    margin: a fraction that the mean of the looks must exceed. Where two clocks disagree the judge counts the one that
    favours a candidate less. That refuses doubtful gains, and would invent losses, so both must show a slowdown here.
    """
    first = looks[0]
    if _is_doubtful(first):
        return "could_not_judge", f"{first.sentence}; one of both clocks shows no slowdown"
    for number, look in enumerate(looks[1:], 2):
        if look.verdict in BROKEN:
            return OUTCOMES[look.verdict], look.sentence
        if not shows_slowdown(look):
            return "could_not_judge", f"{first.sentence}; look {number} did not confirm it: {look.sentence}"
    if len(looks) < LOOKS:
        return "could_not_judge", f"{first.sentence}; a further look gave no comparison"
    mean = math.exp(fmean(math.log(look.ratio) for look in looks if look.ratio))
    if mean * (1.0 + margin) >= 1.0:
        return "could_not_judge", f"{first.sentence}; {mean:.3f}x over {LOOKS} looks is within the margin"
    return "regressed", f"{mean:.3f}x over {LOOKS} looks, which all show a slowdown; the first: {first.sentence}"


def shows_slowdown(comparison: Comparison) -> bool:
    """True for a slowdown of any size that the interval, and the run's noise floor, cannot explain."""
    if comparison.ratio is None or comparison.interval is None:
        return False
    return comparison.interval.high < 1.0 and comparison.ratio * (1.0 + (comparison.noise_floor or 0.0)) < 1.0


def needs_looks(comparison: Comparison) -> bool:
    """True if a first look shows a slowdown that further looks should confirm."""
    undecided = comparison.verdict in (Verdict.SLOWER, Verdict.INCONCLUSIVE)
    return undecided and shows_slowdown(comparison) and not _is_doubtful(comparison)


def resolution(comparison: Comparison) -> float | None:
    """Slowdown that every look shows in nine of ten gates, with this look's noise, as a fraction."""
    if comparison.ratio is None or comparison.interval is None:
        return None
    half = (comparison.interval.high - comparison.interval.low) / 2 / comparison.ratio
    return half + max(half, comparison.noise_floor or 0.0)


def _row(comparison: Comparison, spec_changed: bool, looks: Sequence[Comparison], margin: float) -> GateRow:
    outcome, sentence = OUTCOMES[comparison.verdict], comparison.sentence
    if outcome == "regressed" or len(looks) > 1:
        outcome, sentence = judge_looks(looks, margin)
    return GateRow(
        target=comparison.target,
        outcome=outcome,
        sentence=sentence,
        ratio=comparison.ratio,
        low=comparison.interval.low if comparison.interval else None,
        high=comparison.interval.high if comparison.interval else None,
        at_least=comparison.at_least,
        noise_floor=comparison.noise_floor,
        resolution=resolution(comparison),
        spec_changed=spec_changed,
    )


def _is_doubtful(comparison: Comparison) -> bool:
    """True if one of both clocks shows no slowdown."""
    clocks = comparison.clocks
    return clocks is not None and max(clocks.ratio_parent, clocks.ratio_worker or 0.0) >= 1.0
