"""From the replicates of a comparison to its record: the clock that counts, the verdict, both sides. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.presets import Preset
from aisp_mcp.judge.protections import Protections
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.roles import BASELINES, Role
from aisp_mcp.judge.records.measurement import Clocks
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.judge.verdict import batching, estimators, flags, lower_bound, metric, serving, summary, verdict

DECIDED = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
Ratios = list[tuple[float, float]]  # (log-ratio, A/A log-ratio) per replicate


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
    """Confidence level for so many replicates: 95 %, or what the preset's plan of looks leaves for this one."""
    if not preset.looks:
        return 0.95
    plan = {look.replicates: look.level for look in stats.looks(preset.looks)}
    return plan.get(replicates, max(plan.values()))


def decided(terms: Terms, replicates: list[Replicate]) -> bool:
    """True if this is a planned look, and the replicates so far settle the question."""
    if len(replicates) not in terms.preset.looks:
        return False
    return conclude(terms, replicates, []).verdict in DECIDED


def conclude(terms: Terms, replicates: list[Replicate], found: list[Flag]) -> Comparison:
    """Statistics and verdict over the replicates. found: flags so far; a fatal one decides the verdict."""
    failure = next((flag.message for flag in found if flag.severity == "fatal"), None)
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
    if failure is None:
        found = found + flags.account_flags(replicates, terms.cores)
        if "serving" in terms.opened:
            return _served(terms, replicates, found, common)
        if not any(one.metric for one in replicates):
            return _timed(terms, replicates, found, common)
        has_clocks = terms.opened["goal"] != "cold"
        timed = _timed(terms, replicates, found, common) if has_clocks else metric.started(replicates, found, common)
        return metric.judged(timed, replicates, terms.margin, level(terms.preset, len(replicates)))
    ended = verdict.judge([], [], flags=found, verification=None)
    return Comparison(verdict=ended.verdict, sentence=ended.sentence, flags=found, **common)


def _served(terms: Terms, replicates: list[Replicate], found: list[Flag], common: dict[str, Any]) -> Comparison:
    """The comparison of two engines, on the parent's clock alone."""

    def judged(ratios: Ratios, given: Sequence[Flag]) -> verdict.Judgement:
        columns = [one for one, _ in ratios], [noise for _, noise in ratios]
        planned = level(terms.preset, len(replicates))
        return verdict.judge(
            *columns, margin=terms.margin, level=planned, flags=given, verification=common["verification"]
        )

    return serving.compare(replicates, terms.opened, judged, found, common)


def _timed(terms: Terms, replicates: list[Replicate], found: list[Flag], common: dict[str, Any]) -> Comparison:
    """The comparison of two sides that both did their work."""
    used, clocks, clock_flags = _clock(terms, replicates)
    by_memory = terms.opened["goal"] == "memory"
    if by_memory:
        used = summary.memory_ratios(replicates)
    found = found + clock_flags

    def judged(ratios: Ratios) -> verdict.Judgement:
        return verdict.judge(
            [ratio for ratio, _ in ratios],
            [noise for _, noise in ratios],
            margin=terms.margin,
            level=level(terms.preset, len(replicates)),
            flags=found,
            verification=common["verification"],
            counted=by_memory,
        )

    ruling, seconds = judged(used), list[tuple[Role, float]]()
    guard = terms.protections
    if guard.isolated_calls and not by_memory and (ruling.ratio or 0.0) > 1.0:
        if flag := batching.finding(replicates, clocks.used):
            found = [*found, flag]
            used = batching.ratios(replicates, clocks.used)
            ruling = _no_loss(judged(used))
        given = ([ratio for ratio, _ in used], any(flag.code == "clock_resolution_low" for flag in clock_flags))
        counts = guard.parent_clock and ruling.verdict in (Verdict.FASTER, Verdict.INCONCLUSIVE)
        if counts and (flag := lower_bound.finding(replicates, *given)):
            found = [*(one for one in found if one.code != flag.code), flag]
            seconds = lower_bound.seconds(replicates, *given, clocks.used)
            bound = flag.evidence["ratio_lower_bound"]
            clocks = clocks.model_copy(update={"used": lower_bound.CLOCK, "ratio_lower_bound": bound})
            ruling = _no_loss(judged(lower_bound.ratios(replicates, *given)))
    work, unit = terms.opened["work"], terms.opened["unit"]
    return Comparison(
        verdict=ruling.verdict,
        sentence=ruling.sentence,
        ratio=ruling.ratio,
        interval=ruling.interval,
        margin=ruling.margin,
        noise_floor=ruling.noise_floor,
        p_value=ruling.p_value,
        baseline=summary.side(replicates, BASELINES, clocks.used, work, seconds, unit),
        optimized=summary.side(replicates, (Role.CANDIDATE,), clocks.used, work, seconds, unit),
        clocks=clocks,
        flags=[*found, *ruling.flags],
        **common,
    )


def _no_loss(ruling: verdict.Judgement) -> verdict.Judgement:
    """A bound that counts doubt against the candidate, or rests on few calls, proves no loss and no sameness."""
    if ruling.verdict not in (Verdict.SLOWER, Verdict.SAME):
        return ruling
    sentence = f"inconclusive: no gain is proven, no more than {ruling.ratio:.3g}x"
    return replace(ruling, verdict=Verdict.INCONCLUSIVE, sentence=sentence)


def _clock(terms: Terms, replicates: Sequence[Replicate]) -> tuple[Ratios, Clocks, list[Flag]]:
    """(log-ratio, A/A log-ratio) per replicate on the clock that counts, that clock, and flags about it."""
    on = {clock: estimators.log_ratios(replicates, clock) for clock in ("parent", "worker", "worker_mean")}
    ratios = {clock: [one.log_ratio for one in found] for clock, found in on.items()}
    on_gpu = any(one.device.device_only for one in replicates)
    clocks, found = verdict.choose_clock(
        ratios["parent"],
        ratios["worker"],
        delta=verdict.DEVICE_DELTA if on_gpu else verdict.DELTA,
        worker_mean=ratios["worker_mean"],
        parent_resolution=estimators.parent_resolution(replicates),
    )
    if not terms.protections.parent_clock:
        clocks, found = clocks.model_copy(update={"used": "worker"}), []
    elif _disagree(found) and (both := estimators.with_host(replicates)):
        # Device events behind a flush count a part of the host's time. In rounds in which all of it counts both clocks
        # must say the same.
        parent, own = ([one.log_ratio for one in clock] for clock in both)
        again, more = verdict.choose_clock(parent, own, delta=verdict.DELTA)
        if not _disagree(more):
            on["with_host"], clocks, found = both[0], again.model_copy(update={"used": "with_host"}), more
    used = [(one.log_ratio, one.noise) for one in on[clocks.used]]
    return used, clocks, found


def _disagree(found: list[Flag]) -> bool:
    return any(flag.code == "clock_disagreement" for flag in found)
