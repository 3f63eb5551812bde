"""Comparisons by a metric of the goal's own, one value per process, instead of time per call. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aisp_mcp.harness.analysis import estimators, summary, verdict
from aisp_mcp.harness.analysis import statistics as stats
from aisp_mcp.harness.records import Replicate
from aisp_mcp.harness.schedule import BASELINES, Role
from aisp_mcp.model.measurement import Metric
from aisp_mcp.model.verdict import Comparison, Flag

METRICS = {"cold": ("time to first answer", "s")}  # name and unit by goal; the smaller the better


def log_ratios(replicates: Sequence[Replicate]) -> list[tuple[float, float]]:
    """(log-ratio, A/A log-ratio) per replicate; NaN, which is unusable, without a positive value of every role."""
    unusable = (math.nan, math.nan)
    usable = [len(one.metric) == len(Role) and min(one.metric.values()) > 0.0 for one in replicates]
    return [estimators.ratio(one.metric) if good else unusable for one, good in zip(replicates, usable, strict=True)]


def of_side(replicates: Sequence[Replicate], roles: Sequence[Role], goal: str) -> Metric:
    """Median over the processes of one side."""
    name, unit = METRICS[goal]
    values = [one.metric[role] for one in replicates for role in roles if role in one.metric]
    return Metric(name=name, unit=unit, value=stats.quantile(values, 0.5))


def judged(
    replicates: Sequence[Replicate],
    found: list[Flag],
    work: dict[str, float],
    common: dict[str, Any],
    margin: float | None,
    level: float,
) -> Comparison:
    """The comparison of two sides that both did their work. common: fields that every comparison has."""
    used, goal = log_ratios(replicates), str(common["goal"])
    ruling = verdict.judge(
        [ratio for ratio, _ in used],
        [noise for _, noise in used],
        margin=margin,
        level=level,
        flags=found,
        verification=common["verification"],
    )
    sides = {}
    for name, roles in (("baseline", BASELINES), ("optimized", (Role.CANDIDATE,))):
        side = summary.side(replicates, roles, "parent", work)
        sides[name] = side.model_copy(update={"metric": of_side(replicates, roles, goal)})
    return Comparison(
        verdict=ruling.verdict,
        sentence=ruling.sentence,
        ratio=ruling.ratio,
        interval=ruling.interval,
        margin=ruling.margin,
        noise_floor=ruling.noise_floor,
        p_value=ruling.p_value,
        flags=[*found, *ruling.flags],
        **sides,
        **common,
    )
