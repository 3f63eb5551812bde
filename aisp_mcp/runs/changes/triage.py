"""Results of a run that deserve a second look, and the call that would settle each.

What two runs could not show is settled by measuring both states interleaved, in one job, on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from aisp_mcp.errors import NotFound
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.runs.changes import changes
from aisp_mcp.runs.changes.changes import FLOORS_PER_MARGIN, OPEN, compare_runs, is_worse, of_runs, outcome
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
from aisp_mcp.server.context import Context
from aisp_mcp.server.text.numbers import percent
from aisp_mcp.store.records.run import Run
from aisp_mcp.store.records.verdict_row import RunKind
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
        run_next=[*calls(against, run, not_judged), *_next(run, against, regressed, missing)]
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
        conditions=of_runs(before, after, any_preset),
        changes=changes,
        missing=missing,
        environment_difference=environment_difference(before, after),
        counts={word.value: words.count(word) for word in ChangeVerdict if word in words},
        again=calls(before, after, [change for change in changes if change.verdict in OPEN]),
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
        calls.append(Recommendation(tool="aisp_benchmark_export", args={"run_id": run.id, "format": "html"}, why=why))
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


_GATE = "aisp_benchmark_gate"


def calls(before: Run, after: Run, open_changes: Sequence[Change]) -> list[Recommendation]:
    """The call for these changes, or none if nothing is open."""
    labels = [_label(change) for change in open_changes]
    if not labels:
        return []
    reasons = [reason for change in open_changes for reason in change.reasons]
    if reasons and all(reason.startswith(changes.BOUND) for reason in reasons):
        why = "calls are too short for the parent's clock: measure both again at a larger --size"
        return [Recommendation(tool=RUN, args={"targets": labels, "preset": "default"}, why=why)]
    if all(_same_files(before, after, label) for label in labels):
        why = "both runs measured the same files: if anything changed, it was the machine. Measure once more"
        return [Recommendation(tool=RUN, args={"targets": labels, "preset": "default"}, why=why)]
    base, head = (_commit(run) for run in (before, after))
    if base and head and base != head:
        why = "measures both commits interleaved, under the same conditions"
        return [Recommendation(tool=_GATE, args={"base": base, "head": head, "targets": labels}, why=why)]
    if RunKind.FUNCTIONS in (before.kind, after.kind):  # what functions import is not stored with the run
        return []
    why = "measures the files of both runs interleaved, under the same conditions"
    return [Recommendation(tool=_GATE, args={"base": before.id, "head": after.id, "targets": labels}, why=why)]


def _label(change: Change) -> str:
    return f"{change.target}_{change.candidate}" if change.candidate else change.target


def _same_files(before: Run, after: Run, label: str) -> bool:
    """Return True if both runs stored the same baseline and candidate of this benchmark."""
    folder = f"sources/{label.replace(':', '-').replace('/', '-')}/"
    old, new = ({k: v for k, v in run.sources.items() if k.startswith(folder)} for run in (before, after))
    return bool(old) and old == new


def _commit(run: Run) -> str | None:
    """The unmodified commit that a run measured; None if it is unknown or was modified."""
    commit = run.environment.get("commit") or {}
    return None if commit.get("modified", True) else commit.get("id")


RUN = "aisp_run_benchmarks"
LONGEST = 2000  # characters of a call; a candidate can also be a text of thousands of lines


def of_its_kind(ctx: Context, run: Run, calls: Iterable[Recommendation]) -> list[Recommendation]:
    """The calls, in which those that would run targets repeat the run's own call instead, if it ran none.

    A call that is too long to repeat is left out.
    """
    if run.kind is RunKind.BENCH:
        return list(calls)
    changed = [_again(ctx, run, call) if call.tool == RUN else call for call in calls]
    return [call for call in changed if call is not None]


def _again(ctx: Context, run: Run, call: Recommendation) -> Recommendation | None:
    if run.kind is RunKind.OPTIMIZE:
        session = next((each.candidate.rpartition("_")[0] for each in run.comparisons), "")
        args: dict[str, Any] = {"session": session} if session else {}
        return Recommendation(tool="aisp_optimize_finish", args=args, why="it measures the leaders again")
    try:
        job = ctx.store.job(run.id)
    except NotFound:  # of another machine, or from before jobs were kept
        return None
    args = {name: value for name, value in job.params.items() if value not in (None, False, [], {}, "")}
    args |= {name: of_run for name, of_run in run.commits.items() if str(args.get(name)).startswith("last")}
    args["preset"] = call.args["preset"]
    return Recommendation(tool=job.tool, args=args, why=call.why) if len(str(args)) <= LONGEST else None
