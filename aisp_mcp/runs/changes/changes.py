"""Compare two runs: one outcome per benchmark. Pure functions over stored records.

Both runs give a log-ratio of candidate against baseline with its interval over fresh processes. Their difference is
judged by Welch's t: the standard errors are recovered from the intervals, degrees of freedom by Satterthwaite. The
smallest difference that one run can report for identical programs also limits two runs: the floors add in
root-sum-square. Many benchmarks would give false alarms by their number alone, so the p-values are adjusted by
Benjamini-Hochberg before any word is chosen, and a difference must also exceed the margin, max(1 %, twice the joint
floor).

This holds only for runs under the same conditions. If they differ, nothing is judged: a value missing from a
record is unknown, not a difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Verdict
from aisp_mcp.runs.changes.records import Change, ChangeVerdict, Missing, Outcome
from aisp_mcp.server.text import numbers
from aisp_mcp.server.text.numbers import percent
from aisp_mcp.store.records.run import Run
from aisp_mcp.system.manifest import manifest_difference

ALPHA = 0.05
LEAST_MARGIN = 0.01
FLOORS_PER_MARGIN = 2.0
WIDEST_SAME = 0.05  # a wider margin would call anything the same
BROKEN = (Verdict.INVALID, Verdict.INCORRECT)
WORSE = (ChangeVerdict.SLOWER, ChangeVerdict.INCORRECT, ChangeVerdict.INVALID)
OPEN = (ChangeVerdict.INCONCLUSIVE, ChangeVerdict.COULD_NOT_JUDGE)

Key = tuple[str, str]


@dataclass(frozen=True)
class Shift:
    """A difference of log-ratios. floor and margin are in log units."""

    mean: float
    low: float
    high: float
    p_value: float
    floor: float

    @property
    def margin(self) -> float:
        return math.log1p(max(LEAST_MARGIN, FLOORS_PER_MARGIN * math.expm1(self.floor)))


def compare_runs(before: Run, after: Run, any_preset: bool = False) -> tuple[list[Change], list[Missing]]:
    """Every benchmark of both runs, in the order of the earlier, and those that only one of them has.

    any_preset: runs of different presets may be compared.
    """
    old, new = _by_key(before), _by_key(after)
    both = [key for key in old if key in new]
    common = of_runs(before, after, any_preset)
    reasons = {key: [*common, *of_comparisons(old[key], new[key])] for key in both}
    shifts = {key: None if reasons[key] else _shift(old[key], new[key]) for key in both}
    p_values = {key: shift.p_value for key, shift in shifts.items() if shift}
    adjusted = dict(zip(p_values, stats.benjamini_hochberg(list(p_values.values())), strict=True)) if p_values else {}
    changes = []
    for key in both:
        change = _change(old[key], new[key], shifts[key], adjusted.get(key), reasons[key])
        judged = change.verdict is not ChangeVerdict.COULD_NOT_JUDGE
        provisional = judged and (before.is_provisional(old[key]) or after.is_provisional(new[key]))
        changes.append(change.model_copy(update={"provisional": provisional}))
    missing = [_missing(old[key], "candidate_run", after) for key in old if key not in new]
    return changes, missing + [_missing(new[key], "baseline_run", before) for key in new if key not in old]


def outcome(changes: Sequence[Change], missing: Sequence[Missing], after: Run) -> Outcome:
    """The outcome for a gate, which must not open on lost data: benchmarks that vanished or failed do not pass."""
    vanished = any(item.missing_in == "candidate_run" for item in missing)
    if vanished or after.failed or any(is_worse(change) for change in changes):
        return Outcome.FAILED
    unjudged = not changes or any(change.verdict in OPEN or change.provisional for change in changes)
    return Outcome.COULD_NOT_JUDGE if unjudged else Outcome.PASSED


def is_worse(change: Change) -> bool:
    """Return True for a proven loss. One replicate proves a wrong output, but no loss of time."""
    return change.verdict in WORSE and not (change.provisional and change.verdict is ChangeVerdict.SLOWER)


def change(old: Comparison, new: Comparison) -> Change:
    """The change between two comparisons with one baseline in one session, judged alone."""
    shift = _shift(old, new)
    return _change(old, new, shift, shift.p_value if shift else None, [])


def _by_key(run: Run) -> dict[Key, Comparison]:
    return {(comparison.subject, comparison.candidate): comparison for comparison in run.comparisons}


def _missing(comparison: Comparison, where: str, run: Run) -> Missing:
    target, candidate = comparison.target, comparison.candidate
    names = {target, f"{target}_{candidate}"}
    reasons = [f"skipped: {skip.missing}" for skip in run.skipped if skip.target in names]
    reasons += [f"failed: {failure.code}, {failure.message}" for failure in run.failed if failure.target in names]
    reasons += [f"its {target} has another baseline" for other in run.comparisons if other.label == comparison.label]
    return Missing(target=target, candidate=candidate, missing_in=where, reason=[*reasons, "not part of that run"][0])


def _shift(old: Comparison, new: Comparison) -> Shift | None:
    """The difference; None if a run has no usable numbers, or one of them is not credible."""
    if old.verdict in BROKEN or new.verdict in BROKEN:
        return None
    first, second = estimate(old), estimate(new)
    if first is None or second is None:
        return None
    (before, error_a, df_a), (after, error_b, df_b) = first, second
    error, mean = math.hypot(error_a, error_b), after - before
    floor = math.hypot(*(math.log1p(comparison.noise_floor or 0.0) for comparison in (old, new)))
    if error == 0.0:  # counted metrics such as bytes have no scatter
        return Shift(mean, mean, mean, 1.0 if mean == 0.0 else 0.0, floor)
    df = error**4 / (error_a**4 / df_a + error_b**4 / df_b)
    half = stats.t_quantile(1 - ALPHA / 2, df) * error
    return Shift(mean, mean - half, mean + half, 2 * stats.t_tail(mean / error, df), floor)


def estimate(comparison: Comparison) -> tuple[float, float, float] | None:
    """(log-ratio, its standard error, degrees of freedom), from the ratio and its t interval."""
    if comparison.ratio is None or comparison.interval is None or comparison.noise_floor is None:
        return None
    numbers = (comparison.ratio, comparison.interval.low, comparison.interval.high)
    if not all(math.isfinite(value) and value > 0 for value in numbers):
        return None
    value, low, high = map(math.log, numbers)
    df = float(max(comparison.replicates - 1, 1))
    error = (high - low) / 2 / stats.t_quantile((1 + comparison.interval.level) / 2, df)
    return (value, error, df) if error >= 0 else None


def _change(
    old: Comparison, new: Comparison, shift: Shift | None, adjusted: float | None, reasons: list[str]
) -> Change:
    facts = {
        "target": new.target,
        "candidate": new.candidate,
        "ratio_before": old.ratio,
        "ratio_after": new.ratio,
        "at_least_before": old.at_least,
        "at_least_after": new.at_least,
        "time_before_s": old.optimized.time_s if old.optimized else None,
        "time_after_s": new.optimized.time_s if new.optimized else None,
    }
    if shift is None or adjusted is None:
        word, why = _without_numbers(old, new, reasons)
        return Change(**facts, verdict=word, sentence=f"{word.value.replace('_', ' ')}: {why}", reasons=reasons)
    verdict, reason = _word(shift, adjusted)
    return Change(
        **facts,
        verdict=verdict,
        sentence=_sentence(verdict, reason, shift),
        change=math.exp(shift.mean),
        interval=Interval(low=math.exp(shift.low), high=math.exp(shift.high)),
        noise_floor=math.expm1(shift.floor),
        margin=math.expm1(shift.margin),
        p_value=shift.p_value,
        p_adjusted=adjusted,
    )


def _without_numbers(old: Comparison, new: Comparison, reasons: list[str]) -> tuple[ChangeVerdict, str]:
    """The verdict without numbers: a wrong output is wrong under all conditions; anything else needs equal conditions
    and usable numbers.
    """
    if new.verdict in BROKEN:
        was = "as it was before" if old.verdict is new.verdict else f"it was {old.verdict.value} before"
        return ChangeVerdict(new.verdict.value), f"the later run found it {new.verdict.value}, {was}"
    if reasons:
        return ChangeVerdict.COULD_NOT_JUDGE, f"measured under different conditions ({'; '.join(reasons)})"
    if old.verdict in BROKEN:
        why = f"it was {old.verdict.value} in the earlier run, so there is nothing to compare with"
        return ChangeVerdict.INCONCLUSIVE, why
    return ChangeVerdict.INCONCLUSIVE, "a run has no usable ratio or interval for it"


def _word(shift: Shift, adjusted: float) -> tuple[ChangeVerdict, str | None]:
    """The verdict, with the reason if it is inconclusive. The tests come in the order of their strength."""
    if -shift.margin < shift.low <= shift.high < shift.margin:
        narrow = math.expm1(shift.margin) <= WIDEST_SAME
        return (
            (ChangeVerdict.SAME, None)
            if narrow
            else (ChangeVerdict.INCONCLUSIVE, "the noise is too wide to call it the same")
        )
    if shift.low <= 0.0 <= shift.high:
        return ChangeVerdict.INCONCLUSIVE, "no change cannot be ruled out"
    if adjusted > ALPHA:
        return ChangeVerdict.INCONCLUSIVE, "not significant among this many benchmarks"
    if abs(shift.mean) <= shift.margin:
        return ChangeVerdict.INCONCLUSIVE, "there is a change, but it is within the margin"
    return (ChangeVerdict.FASTER if shift.mean > 0 else ChangeVerdict.SLOWER), None


def _sentence(verdict: ChangeVerdict, reason: str | None, shift: Shift) -> str:
    mean, low, high = (math.exp(min(value, 700.0)) for value in (shift.mean, shift.low, shift.high))
    text = f"{verdict.value}: ratio changed {mean:.4g}x (95 % interval {low:.4g}-{high:.4g})"
    if reason:
        text += f", {reason}"
    margin, floor = (percent(math.expm1(value)) for value in (shift.margin, shift.floor))
    return f"{text}, margin {margin}, noise floor {floor}"


_LASTING = ("host", "gpus", "driver", "cuda_driver", "software", "settings", "limits", "variables")
# Shares of a run's time, and how far two runs may differ in them.
_LOADS = (
    ("cpu_some", 0.10, "tasks waited for a CPU"),
    ("memory_full", 0.02, "tasks waited for memory"),
    ("io_full", 0.10, "tasks waited for a disk"),
)
_STEAL = 0.02
BOUND = "a lower bound is not a measured ratio"
_WORKER_CLOCKS = ("worker", "worker_mean")


def of_runs(before: Run, after: Run, any_preset: bool = False) -> list[str]:
    """Differences between two runs that rule out a comparison, one line each. any_preset: presets may differ."""
    reasons = []
    if before.kind is not after.kind:
        reasons.append(f"kind of run: {before.kind.value} → {after.kind.value}")
    if before.preset != after.preset and not any_preset:
        reasons.append(f"preset: {before.preset} → {after.preset}")
    return [*reasons, *_load(before, after), *manifest_difference(_lasting(before), _lasting(after))]


def of_comparisons(before: Comparison, after: Comparison) -> list[str]:
    """Differences between two comparisons of one benchmark that rule out comparing them."""
    pairs = (
        ("isolation level", before.isolation, after.isolation),
        ("goal", before.goal, after.goal),
        ("clock", _clock(before), _clock(after)),
        ("size", _size(before), _size(after)),
        ("inputs", before.disclosed.get("inputs"), after.disclosed.get("inputs")),
    )
    reasons = [f"{name}: {old} → {new}" for name, old, new in pairs if old and new and old != new]
    if not reasons and (before.at_least or after.at_least):
        words = (numbers.ratio(comparison.ratio, comparison.at_least) for comparison in (before, after))
        reasons.append(f"{BOUND}: {' → '.join(words)}")
    return reasons


def _lasting(run: Run) -> dict[str, Any]:
    """Facts of the machine; the same model of GPU is the same condition, whichever card it is."""
    facts = {name: run.environment[name] for name in _LASTING if name in run.environment}
    if "gpus" in facts:
        facts["gpus"] = [{key: value for key, value in gpu.items() if key != "uuid"} for gpu in run.gpus]
    return facts


def _load(before: Run, after: Run) -> Iterator[str]:
    """Other load on the machine during the runs or, if it was not recorded, just before them."""
    old, new = (run.environment.get("during") or {} for run in (before, after))
    for name, limit, words in _LOADS:
        shares = [_pressure(run, name) for run in (before, after)]
        if reason := _differs(shares, limit):
            yield f"load of the machine: {words} {reason} of the time"
    if reason := _differs([old.get("steal_share"), new.get("steal_share")], _STEAL):
        yield f"load of the machine: the hypervisor took {reason} of the CPU time"
    slowed = [
        {flag["code"]: flag["message"] for flag in during.get("flags") or [] if _slows(flag)} for during in (old, new)
    ]
    for code in sorted(slowed[0].keys() ^ slowed[1].keys()):
        run, messages = ("earlier", slowed[0]) if code in slowed[0] else ("later", slowed[1])
        yield f"only during the {run} run: {messages[code]}"


def _pressure(run: Run, name: str) -> float | None:
    during = (run.environment.get("during") or {}).get("pressure") or {}
    if during.get(name) is not None:
        return float(during[name])
    earlier = (run.environment.get("noise") or {}).get(name)  # in per cent
    return None if earlier is None else earlier / 100


def _differs(shares: list[float | None], limit: float) -> str | None:
    old, new = shares
    if old is None or new is None or abs(new - old) <= limit:
        return None
    return f"{numbers.percent(old)} → {numbers.percent(new)}"


def _slows(flag: Any) -> bool:
    """Return True for an event that slowed a GPU down or shared it; a host's load is compared by its share."""
    return str(flag.get("code", "")).startswith("GPU_") and flag.get("severity") == "warn"


def _clock(comparison: Comparison) -> str | None:
    used = comparison.clocks.used if comparison.clocks else None
    return "worker" if used in _WORKER_CLOCKS else used


def _size(comparison: Comparison) -> str | None:
    size = comparison.disclosed.get("sizes") or comparison.disclosed.get("size")
    return str(size) if size else None
