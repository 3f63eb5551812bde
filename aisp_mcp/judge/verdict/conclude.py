"""From the replicates of a comparison to its record: estimate, bound, verdict. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.options import Protections
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.judge.verdict import bound, estimators, flags, metric, serving, summary, verdict
from aisp_mcp.judge.verdict.estimate import Estimate, Ratios, estimate
from aisp_mcp.judge.verdict.verdict import Outcome
from aisp_mcp.judge.verdict.wording import as_clause

STRIDES_CLAUSES = {
    "strides_copied": "; each call contains a copy of its output into the baseline's strides",
    "strides_differ": "; its output has other strides than the baseline's, and no copy is timed",
}
NOT_BUILT = "extension_not_built"
SETTLED = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
LARGE_GAIN = 1.25  # an inconclusive ratio above this also gets a bound: noise alone rarely reaches it

Judge = Callable[[Ratios, Sequence[Flag]], Outcome]


@dataclass(frozen=True)
class Terms:
    """Conditions of a comparison that its verdict depends on. cores: of a worker. phases: wall seconds so far."""

    pair: Pair
    preset: Preset
    protections: Protections
    opened: OpenAnswer
    isolation: str
    cores: int
    margin: float | None
    phases: dict[str, float]


def level(preset: Preset, replicates: int) -> float:
    """Confidence level after that many replicates: 95 %, or what the preset's plan of looks leaves for this look."""
    if not preset.looks:
        return 0.95
    levels = {look.replicates: look.level for look in stats.looks(preset.looks)}
    return levels.get(replicates, max(levels.values()))


def is_settled(terms: Terms, replicates: list[Replicate]) -> bool:
    """True if this is a planned look, and the replicates so far settle the question."""
    if len(replicates) not in terms.preset.looks:
        return False
    return conclude(terms, replicates, []).verdict in SETTLED


def conclude(terms: Terms, replicates: list[Replicate], comparison_flags: list[Flag]) -> Comparison:
    """Statistics and verdict over the replicates. comparison_flags: flags so far; a fatal one decides the verdict.

    The sentence also says whether the candidate's output has other strides than the baseline's, and which of its
    extensions were not built.
    """
    found = _concluded(terms, replicates, comparison_flags)
    strides = [STRIDES_CLAUSES[flag.code] for flag in found.flags if flag.code in STRIDES_CLAUSES]
    unbuilt = [f"; {as_clause(flag.message)}" for flag in found.flags if flag.code == NOT_BUILT]
    return found.model_copy(update={"sentence": "".join([found.sentence, *strides[:1], *unbuilt])})


def _concluded(terms: Terms, replicates: list[Replicate], comparison_flags: list[Flag]) -> Comparison:
    failure = next((flag.message for flag in comparison_flags if flag.severity == "fatal"), None)
    common: dict[str, Any] = {
        "target": terms.pair.target,
        "candidate": terms.pair.candidate,
        "goal": terms.opened["goal"],
        "isolation": terms.isolation,
        "replicates": len(replicates),
        "verification": summary.verification(replicates, terms.opened, failure),
        "disclosed": terms.opened["facts"],
        "phases": {name: round(seconds, 3) for name, seconds in sorted(terms.phases.items())},
    }
    if failure is not None:
        outcome = verdict.judge([], [], flags=comparison_flags, verification=None)
        return Comparison(verdict=outcome.verdict, sentence=outcome.sentence, flags=comparison_flags, **common)
    all_flags = [*comparison_flags, *flags.account_flags(replicates, terms.cores), *flags.layout_flags(replicates)]
    level_now = level(terms.preset, len(replicates))

    def judge(ratios: Ratios, flags_so_far: Sequence[Flag]) -> Outcome:
        return verdict.judge(
            [log_ratio for log_ratio, _ in ratios],
            [noise for _, noise in ratios],
            margin=terms.margin,
            level=level_now,
            flags=flags_so_far,
            verification=common["verification"],
            counted=terms.opened["goal"] == "memory",
        )

    if "serving" in terms.opened:
        return serving.compare(replicates, terms.opened, judge, all_flags, common)
    if terms.opened["goal"] == "cold" and _has_metric(replicates):
        timed = metric.started(replicates, all_flags, common)
    else:
        try:
            timed = _timed(terms, replicates, all_flags, judge, common)
        except stats.UnusableError as error:  # as of calls that are shorter than the overhead, on a busy machine
            outcome = verdict.unusable(error)
            return Comparison(**outcome.fields(), flags=[*all_flags, *outcome.flags], **common)
    return metric.judged(timed, replicates, terms.margin, level_now) if _has_metric(replicates) else timed


def _has_metric(replicates: Sequence[Replicate]) -> bool:
    return any(replicate.metric for replicate in replicates)


def _timed(
    terms: Terms, replicates: list[Replicate], all_flags: list[Flag], judge: Judge, common: dict[str, Any]
) -> Comparison:
    """The comparison by time per call, or by memory. Both programs passed all checks."""
    estimated = estimate(replicates, all_flags, terms.protections.parent_clock)
    if terms.opened["goal"] == "memory":
        estimated = replace(estimated, ratios=summary.memory_ratios(replicates))
        outcome = judge(estimated.ratios, estimated.flags)
    else:
        estimated, outcome = _judge_bounded(terms.protections, replicates, estimated, judge)
        outcome = verdict.as_lower_bound(outcome, estimated.clocks)
        outcome = verdict.with_device_alone(outcome, estimated.clocks, estimated.flags)
    parts = estimated.clocks.used, terms.opened["work"], estimated.seconds, terms.opened["unit"]
    return Comparison(
        **outcome.fields(),
        baseline=summary.figures(replicates, BASELINES, *parts),
        optimized=summary.figures(replicates, (Role.CANDIDATE,), *parts),
        clocks=estimated.clocks,
        flags=[*estimated.flags, *outcome.flags],
        **common,
    )


def _clock_with_more(replicates: Sequence[Replicate], estimated: Estimate) -> str | None:
    """The clock, if any, that disagrees with the one that counts, shows more, and may be right: the worker's on a CPU,
    where the parent's may count more than the calls, and the parent's on a GPU, where events may.
    """
    clocks = estimated.clocks
    if any(replicate.device.device_only for replicate in replicates):
        is_apart = (clocks.disagreement or 0.0) > clocks.delta
        return "parent" if is_apart and clocks.used in ("worker", "worker_mean") else None
    return "worker" if clocks.used == "parent" and (clocks.ratio_worker or 0.0) > clocks.ratio_parent else None


def _leads_to(outcome: Outcome, clock: str, replicates: Sequence[Replicate], flags: list[Flag], judge: Judge) -> bool:
    """Return True if that clock leads to the same verdict."""
    ratios = [(ratio.log_ratio, ratio.noise) for ratio in estimators.log_ratios(replicates, clock)]
    return judge(ratios, flags).verdict is outcome.verdict


def _judge_bounded(
    protections: Protections, replicates: list[Replicate], estimated: Estimate, judge: Judge
) -> tuple[Estimate, Outcome]:
    """Judge the estimate, then each bound that reduces the gain."""
    outcome = judge(estimated.ratios, estimated.flags)
    clock = _clock_with_more(replicates, estimated)
    if clock and not _leads_to(outcome, clock, replicates, estimated.flags, judge):
        outcome = verdict.without_loss(outcome)
    if not protections.isolated_calls or (outcome.ratio or 0.0) <= 1.0:
        return estimated, outcome
    if bounded := bound.by_isolated_calls(estimated, replicates):
        estimated, outcome = bounded, verdict.without_loss(judge(bounded.ratios, bounded.flags))
    gains = outcome.verdict is Verdict.FASTER or (outcome.ratio or 0.0) > LARGE_GAIN
    if not protections.parent_clock or not gains:
        return estimated, outcome
    if bounded := bound.by_parent_clock(estimated, replicates):
        estimated, outcome = bounded, verdict.without_loss(judge(bounded.ratios, bounded.flags))
    return estimated, outcome
