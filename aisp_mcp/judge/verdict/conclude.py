"""From the replicates of a comparison to its record: estimate, bound, verdict, and their words.

Most comparisons are by time per call, or by memory. Goals with a metric of their own (cold starts, energy) have one
value per process; serving engines are compared in serving.py. All functions are pure.
"""

from __future__ import annotations

import math
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
from aisp_mcp.judge.records.measurement import Metric
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.judge.verdict import aside, bound, figures, flags, serving, values, verdict, wording
from aisp_mcp.judge.verdict import estimate as estimates
from aisp_mcp.judge.verdict.estimate import Estimate, Ratios
from aisp_mcp.judge.verdict.verdict import Judgement

# An inconclusive ratio above this also gets a bound. Chosen: noise alone rarely reaches it, so that identical programs
# do not look slower (decision 21).
LARGE_GAIN = 1.25

SETTLED = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
NOT_BUILT = "extension_not_built"
BATCHED = {"batching", "batching_unverified"}
# Share of what a start saves that its second call may take longer before this is named.
POSTPONED = 0.25
# Name and unit of a goal's metric; the smaller the better.
METRICS = {"cold": ("time to first answer", "s"), "energy": ("energy per call", "J")}

Judge = Callable[[Ratios, Sequence[Flag]], Judgement]


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


def is_settled(terms: Terms, replicates: list[Replicate]) -> bool:
    """True if this is a planned look, and the replicates so far settle the question."""
    if len(replicates) not in terms.preset.looks:
        return False
    return conclude(terms, replicates, []).verdict in SETTLED


def conclude(terms: Terms, replicates: list[Replicate], comparison_flags: list[Flag]) -> Comparison:
    """Statistics and verdict over the replicates. comparison_flags: flags so far; a fatal one decides the verdict.

    The sentence also says whether the candidate's output has other strides than the baseline's, which of its extensions
    were not built, what the user chose to judge answers by, whether these are of a lower precision, and whether a call
    overwrites the result of the one before.
    """
    usable = [replace(replicate, device=estimates.with_usable_seconds(replicate.device)) for replicate in replicates]
    found = _concluded(terms, aside.counted(usable), comparison_flags)
    strides = [wording.STRIDES_CLAUSES[flag.code] for flag in found.flags if flag.code in wording.STRIDES_CLAUSES]
    unbuilt = [f"; {wording.as_clause(flag.message)}" for flag in found.flags if flag.code == NOT_BUILT]
    named = [f"; {wording.as_clause(flag.message)}" for flag in found.flags if flag.code in wording.IN_SENTENCE]
    chosen = [f"; {by}"] if (by := terms.opened["facts"].get("judged_by")) else []
    return found.model_copy(update={"sentence": "".join([found.sentence, *strides[:1], *unbuilt, *chosen, *named])})


def level(preset: Preset, replicates: int) -> float:
    """Confidence level after that many replicates: 95 %, or what the preset's plan of looks leaves for this look."""
    if not preset.looks:
        return 0.95
    levels = {look.replicates: look.level for look in stats.looks(preset.looks)}
    return levels.get(replicates, max(levels.values()))


def _concluded(terms: Terms, replicates: list[Replicate], comparison_flags: list[Flag]) -> Comparison:
    failure = next((flag.message for flag in comparison_flags if flag.severity == "fatal"), None)
    common: dict[str, Any] = {
        "target": terms.pair.target,
        "candidate": terms.pair.candidate,
        "goal": terms.opened["goal"],
        "isolation": terms.isolation,
        "replicates": len(replicates),
        "verification": figures.verification(replicates, terms.opened, failure),
        "disclosed": {**terms.opened["facts"], **figures.between_ranks(replicates)},
        "phases": {name: round(seconds, 3) for name, seconds in sorted(terms.phases.items())},
    }
    if failure is not None:
        ended = verdict.judge([], [], flags=comparison_flags, verification=None)
        return Comparison(verdict=ended.verdict, sentence=ended.sentence, flags=comparison_flags, **common)
    all_flags = [
        *comparison_flags,
        *flags.account_flags(replicates, terms.cores),
        *flags.layout_flags(replicates),
        *flags.input_flags(terms.opened["facts"]),
    ]
    level_now = level(terms.preset, len(replicates))
    apart = estimates.dropped_apart(replicates) if terms.opened["goal"] == "speed" else 0.0

    def judge(ratios: Ratios, flags_so_far: Sequence[Flag]) -> Judgement:
        return verdict.judge(
            [log_ratio for log_ratio, _ in ratios],
            [noise for _, noise in ratios],
            margin=terms.margin,
            level=level_now,
            flags=flags_so_far,
            verification=common["verification"],
            apart=apart,
            counted=terms.opened["goal"] == "memory",
        )

    if "serving" in terms.opened:
        return serving.compare(replicates, terms.opened, judge, all_flags, common)
    if terms.opened["goal"] == "cold" and _has_metric(replicates):
        timed = cold_starts(replicates, all_flags, common)
    else:
        try:
            timed = values.on_all_kinds(_timed(terms, replicates, all_flags, judge, common), replicates)
        except stats.UnusableError as error:  # as of calls that are shorter than the overhead, on a busy machine
            unusable = verdict.unusable(error)
            return Comparison(**unusable.fields(), flags=[*all_flags, *unusable.flags], **common)
    return judged_by_metric(timed, replicates, terms.margin, level_now) if _has_metric(replicates) else timed


# --- by time per call, or by memory


def _timed(
    terms: Terms, replicates: list[Replicate], all_flags: list[Flag], judge: Judge, common: dict[str, Any]
) -> Comparison:
    """The comparison by time per call, or by memory. Both programs passed all checks."""
    estimate = estimates.estimate(replicates, all_flags, terms.protections.parent_clock)
    if terms.opened["goal"] == "memory":
        estimate = replace(estimate, ratios=figures.memory_ratios(replicates))
        judgement = judge(estimate.ratios, estimate.flags)
    else:
        estimate, judgement = _judge_bounded(terms.protections, replicates, estimate, judge)
        judgement = verdict.as_lower_bound(judgement, estimate.clocks)
        judgement = verdict.with_device_alone(judgement, estimate.clocks, estimate.flags)
    parts = estimate.clocks.used, terms.opened["work"], estimate.seconds, terms.opened["unit"]
    return Comparison(
        **judgement.fields(),
        baseline=figures.of_program(replicates, BASELINES, *parts),
        optimized=figures.of_program(replicates, (Role.CANDIDATE,), *parts),
        clocks=estimate.clocks,
        flags=[*estimate.flags, *judgement.flags],
        **common,
    )


def _judge_bounded(
    protections: Protections, replicates: list[Replicate], estimate: Estimate, judge: Judge
) -> tuple[Estimate, Judgement]:
    """Judge the estimate, then each bound that reduces the gain."""
    judgement = judge(estimate.ratios, estimate.flags)
    clock = _clock_with_more(replicates, estimate)
    if clock and not _leads_to(judgement, clock, replicates, estimate.flags, judge):
        judgement = verdict.without_loss(judgement)
    if not protections.isolated_calls or (judgement.ratio or 0.0) <= 1.0:
        return estimate, judgement
    if bounded := bound.by_isolated_calls(estimate, replicates):
        estimate, judgement = bounded, verdict.without_loss(judge(bounded.ratios, bounded.flags))
    gains = judgement.verdict is Verdict.FASTER or (judgement.ratio or 0.0) > LARGE_GAIN
    if not protections.parent_clock or not gains:
        return estimate, judgement
    if bounded := bound.by_parent_clock(estimate, replicates):
        estimate, judgement = bounded, verdict.without_loss(judge(bounded.ratios, bounded.flags))
    return estimate, judgement


def _clock_with_more(replicates: Sequence[Replicate], estimate: Estimate) -> str | None:
    """The clock, if any, that disagrees with the one used, shows more, and may be right: the worker's on a CPU, where
    the parent's may count more than the calls, and the parent's on a GPU, where events may.
    """
    clocks = estimate.clocks
    if any(replicate.device.device_only for replicate in replicates):
        is_apart = (clocks.disagreement or 0.0) > clocks.delta
        return "parent" if is_apart and clocks.used in ("worker", "worker_mean") else None
    return "worker" if clocks.used == "parent" and (clocks.ratio_worker or 0.0) > clocks.ratio_parent else None


def _leads_to(
    judgement: Judgement, clock: str, replicates: Sequence[Replicate], flags_so_far: list[Flag], judge: Judge
) -> bool:
    """Return True if that clock leads to the same verdict."""
    ratios = [(ratio.log_ratio, ratio.noise) for ratio in estimates.log_ratios(replicates, clock)]
    return judge(ratios, flags_so_far).verdict is judgement.verdict


# --- by a goal's own metric


def cold_starts(replicates: Sequence[Replicate], flags_so_far: list[Flag], common: dict[str, Any]) -> Comparison:
    """A comparison of cold starts, not yet judged. common: fields of every comparison."""
    warm = []
    if common["isolation"] in ("L0", "L1"):
        warm = [Flag(code="warm_state_possible", severity="warn", message=wording.WARM_STATE_POSSIBLE)]
    programs = {
        name: figures.of_program(replicates, roles, "parent", figures.NO_WORK) for name, roles in figures.ROLES.items()
    }
    flags = [*flags_so_far, *warm, *_postponed(replicates)]
    return Comparison(verdict=Verdict.INCONCLUSIVE, sentence="", flags=flags, **programs, **common)


def _postponed(replicates: Sequence[Replicate]) -> list[Flag]:
    """A flag if the candidate's second call takes longer by a large part of what its start saves."""
    rows = [replicate for replicate in replicates if replicate.second_s]
    saved = [row.metric[Role.BASELINE] - row.metric[Role.CANDIDATE] for row in rows]
    later = [row.second_s[Role.CANDIDATE] - row.second_s[Role.BASELINE] for row in rows]
    if not rows or not 0 < POSTPONED * stats.quantile(saved, 0.5) < stats.quantile(later, 0.5):
        return []
    seconds = [stats.quantile([row.second_s[role] for row in rows], 0.5) for role in (Role.CANDIDATE, Role.BASELINE)]
    return [Flag(code=wording.POSTPONED, severity="warn", message=wording.postponed(*seconds))]


def judged_by_metric(
    timed: Comparison, replicates: Sequence[Replicate], margin: float | None, level: float
) -> Comparison:
    """The comparison by the goal's metric. timed: the comparison by time, whose flags and figures it keeps.

    If timed calls were batched, the saving may be due to batching, so a gain is not proven.
    """
    ratios = metric_ratios(replicates)
    judgement = verdict.judge(
        [log_ratio for log_ratio, _ in ratios],
        [noise for _, noise in ratios],
        margin=margin,
        level=level,
        flags=timed.flags,
        verification=timed.verification,
    )
    if judgement.verdict is Verdict.INCONCLUSIVE and timed.goal == "energy" and (below := _below_idle(replicates)):
        sentence = wording.short_sentence(Verdict.INCONCLUSIVE, below.message)
        judgement = replace(judgement, sentence=sentence, flags=(below,))
    metrics = {name: _over_processes(replicates, roles, timed.goal) for name, roles in figures.ROLES.items()}
    amounts = wording.amounts(*metrics.values())
    postponed = [wording.as_clause(flag.message) for flag in timed.flags if flag.code == wording.POSTPONED]
    sentence = "; ".join([judgement.sentence, amounts, *postponed])
    if judgement.verdict is Verdict.FASTER and BATCHED & {flag.code for flag in timed.flags}:
        judgement = replace(judgement, verdict=Verdict.INCONCLUSIVE)
        sentence = wording.batched_gain_is_unproven(amounts)
    update = {**judgement.fields(), "sentence": sentence, "flags": [*timed.flags, *judgement.flags]}
    update |= {name: getattr(timed, name).model_copy(update={"metric": metric}) for name, metric in metrics.items()}
    return timed.model_copy(update=update)


def metric_ratios(replicates: Sequence[Replicate]) -> list[tuple[float, float]]:
    """(log-ratio, A/A log-ratio) per replicate; NaN, which is unusable, unless every role has a positive value."""
    unusable = (math.nan, math.nan)
    usable = [len(replicate.metric) == len(Role) and min(replicate.metric.values()) > 0.0 for replicate in replicates]
    return [
        estimates.ratio(replicate.metric) if good else unusable
        for replicate, good in zip(replicates, usable, strict=True)
    ]


def _has_metric(replicates: Sequence[Replicate]) -> bool:
    return any(replicate.metric for replicate in replicates)


def _over_processes(replicates: Sequence[Replicate], roles: Sequence[Role], goal: str) -> Metric:
    """Median over the processes of these roles."""
    name, unit = METRICS[goal]
    found = [replicate.metric[role] for replicate in replicates for role in roles if role in replicate.metric]
    return Metric(name=name, unit=unit, value=stats.quantile(found, 0.5))


def _below_idle(replicates: Sequence[Replicate]) -> Flag | None:
    """A flag for replicates in which a program used no more energy than the idle device; they have no ratio."""
    low = {
        program: sum(
            min(replicate.metric[role] for role in roles) <= 0.0 for replicate in replicates if replicate.metric
        )
        for program, roles in (("baseline", BASELINES), ("candidate", (Role.CANDIDATE,)))
    }
    if not any(low.values()):
        return None
    evidence = {"idle_w": [[round(watts, 1) for watts in replicate.idle_w] for replicate in replicates]}
    message = wording.energy_below_idle(low, len(replicates))
    return Flag(code="energy_below_idle", severity="warn", message=message, evidence=evidence)
