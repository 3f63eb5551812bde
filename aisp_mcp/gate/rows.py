"""The rows of a gate's report, one per benchmark, and the reasons why a change does not pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aisp_mcp.gate import policy
from aisp_mcp.gate.pairs import head_needs
from aisp_mcp.gate.records import GateRow, Outcome, Policy
from aisp_mcp.judge.records import CANDIDATE_NEEDS, Skip
from aisp_mcp.judge.records.verdict import Comparison
from aisp_mcp.store.records.run import Failure, Run

JUDGED: tuple[Outcome, ...] = ("improved", "unchanged", "regressed", "wrong")
IMPRECISE = ("UNSTABLE", "DEGENERATE")  # refusals of a baseline whose output is far from the reference
Looks = Mapping[str, Sequence[Comparison]]  # by target, the first look first


def rows(run: Run, changed_specs: set[str], looks: Looks, margin: float) -> list[GateRow]:
    """One row for each benchmark that both commits have. changed_specs: targets whose specification differs."""
    compared = [
        _row(comparison, comparison.target in changed_specs, looks.get(comparison.target, [comparison]), margin)
        for comparison in run.comparisons
    ]
    skipped = [_skipped(skip) for skip in run.skipped]
    return compared + skipped + [_failed(failure) for failure in run.failed]


def absent_rows(base_names: Sequence[str], head_names: Sequence[str]) -> list[GateRow]:
    """Rows for the benchmarks that only one of the commits has."""
    missing = [name for name in base_names if name not in head_names]
    new = [name for name in head_names if name not in base_names]
    return [
        *(GateRow(target=name, outcome="missing", sentence="The head has no such benchmark.") for name in missing),
        *(
            GateRow(target=name, outcome="new", sentence="The base has no such benchmark: nothing to compare with.")
            for name in new
        ),
    ]


def reasons(gate_rows: Sequence[GateRow], policies: Mapping[Outcome, Policy]) -> list[str]:
    """Reasons why the change does not pass, and warnings; a reason that begins with "fail" fails it."""
    every: dict[Outcome, Policy] = {**policies, **dict.fromkeys(policy.ALWAYS_FAIL, "fail")}
    return [
        f"{every[row.outcome]}: {row.target} {row.outcome.replace('_', ' ')}: {row.sentence}"
        for row in gate_rows
        if every.get(row.outcome, "pass") != "pass"
    ]


def passed(gate_rows: Sequence[GateRow], why: Sequence[str]) -> bool | None:
    """False if a reason fails the change, and None if nothing could be judged, which is not a pass either."""
    if any(reason.startswith("fail") for reason in why):
        return False
    return True if any(row.outcome in JUDGED for row in gate_rows) else None


def _failed(failure: Failure) -> GateRow:
    """The row of a failure; the baseline that the judge may refuse is the candidate of the base."""
    why = "The base's version, which is the baseline here, may be incorrect. " if failure.code in IMPRECISE else ""
    return GateRow(target=failure.target, outcome="failed", sentence=f"{failure.code}: {why}{failure.message}")


def _skipped(skip: Skip) -> GateRow:
    """The row of a skip. What the candidate needs beyond the specification, only the head needs: the base has run."""
    if skip.code == CANDIDATE_NEEDS:
        return GateRow(target=skip.target, outcome="failed", sentence=f"HEAD_NEEDS: {head_needs(skip.missing)}")
    return GateRow(target=skip.target, outcome="could_not_judge", sentence=f"skipped: needs {skip.missing}")


def _row(comparison: Comparison, spec_changed: bool, looks: Sequence[Comparison], margin: float) -> GateRow:
    outcome, sentence = policy.OUTCOMES[comparison.verdict], comparison.sentence
    if broken := next((look for look in looks if look.verdict in policy.BROKEN), None):
        outcome, sentence = policy.OUTCOMES[broken.verdict], broken.sentence
    elif outcome == "regressed" or len(looks) > 1:
        outcome, reason = policy.judge_looks([policy.look(look) for look in looks], margin)
        sentence = f"{reason}; the first: {sentence}"
    return GateRow(
        target=comparison.target,
        outcome=outcome,
        sentence=sentence,
        ratio=comparison.ratio,
        low=comparison.interval.low if comparison.interval else None,
        high=comparison.interval.high if comparison.interval else None,
        at_least=comparison.at_least,
        noise_floor=comparison.noise_floor,
        resolution=policy.resolution(comparison.ratio, comparison.interval, comparison.noise_floor),
        spec_changed=spec_changed,
    )
