"""Comparisons by a goal's own metric, one value per process, instead of time per call. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.measurement import Metric
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.judge.verdict import estimators, summary, verdict

METRICS = {
    "cold": ("time to first answer", "s"),
    "energy": ("energy per call", "J"),
}  # name and unit by goal; smaller is better
ROLES: dict[str, tuple[Role, ...]] = {"baseline": BASELINES, "optimized": (Role.CANDIDATE,)}
WORDS = {"baseline": "baseline", "optimized": "candidate"}
BATCHED = {"batching", "batching_unverified"}


def log_ratios(replicates: Sequence[Replicate]) -> list[tuple[float, float]]:
    """(log-ratio, A/A log-ratio) per replicate; NaN, which is unusable, unless every role has a positive value."""
    unusable = (math.nan, math.nan)
    usable = [len(replicate.metric) == len(Role) and min(replicate.metric.values()) > 0.0 for replicate in replicates]
    return [
        estimators.ratio(replicate.metric) if good else unusable
        for replicate, good in zip(replicates, usable, strict=True)
    ]


def over_processes(replicates: Sequence[Replicate], roles: Sequence[Role], goal: str) -> Metric:
    """Median over the processes of these roles."""
    name, unit = METRICS[goal]
    values = [replicate.metric[role] for replicate in replicates for role in roles if role in replicate.metric]
    return Metric(name=name, unit=unit, value=stats.quantile(values, 0.5))


def started(replicates: Sequence[Replicate], flags: list[Flag], common: dict[str, Any]) -> Comparison:
    """A comparison of cold starts, not yet judged. common: fields of every comparison."""
    flags = list(flags)
    if common["isolation"] in ("L0", "L1"):
        message = "At this isolation level, a process of an earlier replicate may keep running and keep its state."
        flags.append(Flag(code="warm_state_possible", severity="warn", message=message))
    programs = {
        name: summary.figures(replicates, roles, "parent", dict.fromkeys(("flops", "bytes", "items"), 0.0))
        for name, roles in ROLES.items()
    }
    return Comparison(verdict=Verdict.INCONCLUSIVE, sentence="", flags=flags, **programs, **common)


def judged(timed: Comparison, replicates: Sequence[Replicate], margin: float | None, level: float) -> Comparison:
    """The comparison by the goal's metric. timed: the comparison by time, whose flags and figures it keeps.

    If timed calls were batched, the saving may be due to batching, so a gain is not proven.
    """
    ratios = log_ratios(replicates)
    outcome = verdict.judge(
        [log_ratio for log_ratio, _ in ratios],
        [noise for _, noise in ratios],
        margin=margin,
        level=level,
        flags=timed.flags,
        verification=timed.verification,
    )
    if outcome.verdict is Verdict.INCONCLUSIVE and timed.goal == "energy" and (below := _below_idle(replicates)):
        outcome = replace(outcome, sentence=f"inconclusive: {below.message}", flags=(below,))
    metrics = {name: over_processes(replicates, roles, timed.goal) for name, roles in ROLES.items()}
    sentence = f"{outcome.sentence}; {_words(metrics)}"
    if outcome.verdict is Verdict.FASTER and BATCHED & {flag.code for flag in timed.flags}:
        outcome = replace(outcome, verdict=Verdict.INCONCLUSIVE)
        sentence = f"inconclusive: calls were worked on together, which proves no gain of one; {_words(metrics)}"
    update = {
        **outcome.fields(),
        "sentence": sentence,
        "flags": [*timed.flags, *outcome.flags],
    }
    update |= {name: getattr(timed, name).model_copy(update={"metric": metric}) for name, metric in metrics.items()}
    return timed.model_copy(update=update)


def _below_idle(replicates: Sequence[Replicate]) -> Flag | None:
    """A flag for replicates in which a program used no more energy than the idle device; they have no ratio."""
    low = {
        name: sum(min(replicate.metric[role] for role in roles) <= 0.0 for replicate in replicates if replicate.metric)
        for name, roles in ROLES.items()
    }
    if not any(low.values()):
        return None
    words = " and ".join(f"of the {WORDS[name]} in {count}" for name, count in low.items() if count)
    message = (
        f"energy above idle {words} of {len(replicates)} replicates is not positive: a call does too little work, or "
        "the power of the idle device changed meanwhile, by other programs on it or by clocks that fall"
    )
    evidence = {"idle_w": [[round(watts, 1) for watts in replicate.idle_w] for replicate in replicates]}
    return Flag(code="energy_below_idle", severity="warn", message=message, evidence=evidence)


def _words(metrics: dict[str, Metric]) -> str:
    baseline, candidate = metrics["baseline"], metrics["optimized"]
    return f"{baseline.name} {baseline.value:.3g} {baseline.unit} and {candidate.value:.3g} {candidate.unit}"
