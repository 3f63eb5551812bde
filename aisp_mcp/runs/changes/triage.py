"""Results of a run that deserve a second look, and the call that would settle each."""

from __future__ import annotations

import math

from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.runs.changes import again, conditions
from aisp_mcp.runs.changes.changes import FLOORS_PER_MARGIN, OPEN, compare_runs, is_worse, outcome
from aisp_mcp.runs.changes.records import (
    Change,
    ChangeVerdict,
    Missing,
    Outcome,
    Recommendation,
    RunComparison,
    Suspicion,
    Triage,
)
from aisp_mcp.runs.changes.rerun import RUN
from aisp_mcp.server.text.numbers import percent
from aisp_mcp.store.records.run import Run
from aisp_mcp.system.manifest import manifest_difference

ENOUGH_REPLICATES = 5  # replicates of the default preset
WIDE_FLOOR = 0.05  # above this, the harness refuses to call anything the same
THIN_SHARE = 0.25
_ORDER = {"fatal": 0, "warn": 1, "note": 2}
_SETTLED = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)


def triage(run: Run, against: Run | None) -> Triage:
    """Regressions against another run if one is given; suspicions and next calls in any case."""
    changes, missing = compare_runs(against, run) if against else ([], [])
    regressed = [change for change in changes if change.verdict is ChangeVerdict.SLOWER and is_worse(change)]
    not_judged = [change for change in changes if change.verdict is ChangeVerdict.COULD_NOT_JUDGE]
    suspect = sorted(
        (s for comparison in run.comparisons for s in _suspicions(comparison)), key=lambda s: _ORDER.get(s.severity, 3)
    )
    lost = [f"{skip.target}: {skip.code}, {skip.missing}" for skip in run.skipped]
    lost += [f"{failure.target}: {failure.code}, {failure.message}" for failure in run.failed]
    return Triage(
        regressed=regressed,
        not_judged=not_judged,
        suspect=suspect,
        missing=missing,
        not_measured=lost,
        environment_difference=environment_difference(against, run) if against else [],
        run_next=[*again.calls(against, run, not_judged), *_next(run, against, regressed, missing)]
        if against
        else _next(run, None, regressed, missing),
    )


def compared(before: Run, after: Run, any_preset: bool = False) -> RunComparison:
    """The whole answer of a comparison of two runs."""
    changes, missing = compare_runs(before, after, any_preset)
    words = [change.verdict for change in changes]
    result = outcome(changes, missing, after)
    return RunComparison(
        sentence=_answer(result, changes, missing, after),
        outcome=result,
        passed=result is Outcome.PASSED,
        conditions=conditions.of_runs(before, after, any_preset),
        changes=changes,
        missing=missing,
        environment_difference=environment_difference(before, after),
        counts={word.value: words.count(word) for word in ChangeVerdict if word in words},
        again=again.calls(before, after, [change for change in changes if change.verdict in OPEN]),
    )


def _answer(result: Outcome, changes: list[Change], missing: list[Missing], after: Run) -> str:
    """The outcome as a sentence that names the obstacles to passing."""
    if not changes and result is not Outcome.FAILED:
        return "could not judge: the runs have no benchmark in common"
    total = f"{len(changes)} benchmark{'' if len(changes) == 1 else 's'}"
    if result is Outcome.PASSED:
        return f"passed: {total} judged, none is slower, incorrect or invalid"
    worse = [change.verdict.value for change in changes if is_worse(change)]
    parts = [f"{worse.count(word)} {word}" for word in dict.fromkeys(worse)]
    lost = sum(item.missing_in == "candidate_run" for item in missing)
    parts += [f"{lost} missing in the later run"] if lost else []
    parts += [f"{len(after.failed)} failed"] if after.failed else []
    unjudged = [change for change in changes if change.verdict in OPEN or (change.provisional and not is_worse(change))]
    if unjudged:
        reasons = dict.fromkeys(reason for change in unjudged for reason in change.reasons)
        why = f" ({next(iter(reasons))})" if reasons else ""
        parts.append(f"{len(unjudged)} of {total} could not be judged{why}")
    return f"{result.value.replace('_', ' ')}: {', '.join(parts)}"


def environment_difference(before: Run, after: Run) -> list[str]:
    """Differences between the environments of two runs; events during the runs are left out."""
    left, right = ({k: v for k, v in run.environment.items() if k != "during"} for run in (before, after))
    words = manifest_difference(left, right)
    if before.preset != after.preset:
        words.append(f"preset: {before.preset} → {after.preset}")
    return words


def _suspicions(comparison: Comparison) -> list[Suspicion]:
    """Flags of the harness, then suspicions from the numbers themselves."""
    rows = [(flag.severity, flag.code, flag.message, flag.evidence) for flag in comparison.flags]
    if comparison.verdict is Verdict.INCORRECT and not any(flag.severity == "fatal" for flag in comparison.flags):
        rows.append(("fatal", "incorrect", comparison.sentence, {}))
    if comparison.verdict in _SETTLED and comparison.replicates < ENOUGH_REPLICATES:
        rows.append(("note", "few_replicates", "based on few processes", {"replicates": comparison.replicates}))
    if noise := _noise(comparison):
        rows.append(noise)
    seen = comparison.verification
    if seen and comparison.verdict in _SETTLED and seen.undetected_share > THIN_SHARE:
        evidence = {"undetected_share": seen.undetected_share}
        rows.append(("note", "thin_verification", "few timed calls were checked", evidence))
    allowed = (seen and seen.allowed_error_ratio) or 0.0
    error = (seen and seen.max_error_ratio) or 0.0
    if allowed / 2 < error <= allowed:
        evidence = {"max_error_ratio": error, "allowed": allowed}
        rows.append(("note", "near_tolerance", "the error is close to what is allowed", evidence))
    return [
        Suspicion(
            severity=how,
            code=code,
            target=comparison.target,
            candidate=comparison.candidate,
            message=text,
            evidence=evidence,
        )
        for how, code, text, evidence in rows
    ]


def _noise(comparison: Comparison) -> tuple[str, str, str, dict[str, float]] | None:
    """The warning that noise may hide a result: the verdict is open, or the difference is no larger than the noise."""
    floor, ratio = comparison.noise_floor, comparison.ratio
    if floor is None or ratio is None or ratio <= 0 or floor <= WIDE_FLOOR:
        return None
    margin = FLOORS_PER_MARGIN * floor
    if comparison.verdict in _SETTLED and abs(math.log(ratio)) > math.log1p(margin):
        return None
    message = f"two processes of one program differed by {percent(floor)}: no difference below {percent(margin)} shows"
    return "warn", "noisy", message, {"noise_floor": floor}


def _next(run: Run, against: Run | None, regressed: list[Change], missing: list[Missing]) -> list[Recommendation]:
    """Worthwhile calls, the most pressing first; each names targets once."""
    calls = []
    broken = {
        comparison.target
        for comparison in run.comparisons
        if comparison.verdict in (Verdict.INVALID, Verdict.INCORRECT)
    }
    if broken:
        why = f"evidence for {', '.join(sorted(broken))}"
        calls.append(Recommendation(tool="aisp_benchmark_report", args={"run_id": run.id}, why=why))
    if regressed:
        calls.append(_rerun({change.target for change in regressed}, "confirm the regressions with ten replicates"))
    open_ones = {comparison.target for comparison in run.comparisons if comparison.verdict is Verdict.INCONCLUSIVE}
    open_ones -= {change.target for change in regressed}
    if open_ones:
        calls.append(_rerun(open_ones, "more replicates narrow the intervals"))
    gone = {item.target for item in missing if item.missing_in == "candidate_run"}
    if gone:
        calls.append(_rerun(gone, "the run to compare with has these", preset="default"))
    if run.skipped:
        calls.append(Recommendation(tool="aisp_system_dependencies", args={}, why="see what the skipped targets lack"))
    if against and environment_difference(against, run):
        calls.append(Recommendation(tool="aisp_triage", args={}, why="the machines or their load differ"))
    return calls


def _rerun(targets: set[str], why: str, preset: str = "release") -> Recommendation:
    return Recommendation(tool=RUN, args={"targets": sorted(targets), "preset": preset}, why=why)
