"""Second step of a verdict: the part of a gain that is certain. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.verdict import batching, lower_bound
from aisp_mcp.judge.verdict.estimate import Estimate


def by_isolated_calls(estimate: Estimate, replicates: Sequence[Replicate]) -> Estimate | None:
    """The gain of isolated calls, for a candidate that gains by batching across calls; None otherwise."""
    flag = batching.finding(replicates, estimate.clocks.used)
    if flag is None:
        return None
    ratios = batching.ratios(replicates, estimate.clocks.used)
    return replace(estimate, ratios=ratios, flags=[*estimate.flags, flag])


def by_parent_clock(estimate: Estimate, replicates: Sequence[Replicate]) -> Estimate | None:
    """The gain that the parent's clock proves, if it is much less than the estimate; None otherwise."""
    reported = estimate.log_ratios
    flag = lower_bound.finding(replicates, reported)
    if flag is None:
        return None
    clocks = {"used": lower_bound.CLOCK, "ratio_lower_bound": flag.evidence["ratio_lower_bound"]}
    return replace(
        estimate,
        ratios=lower_bound.ratios(replicates, reported),
        clocks=estimate.clocks.model_copy(update=clocks),
        flags=[*(other for other in estimate.flags if other.code != flag.code), flag],
        seconds=lower_bound.seconds(replicates, reported, estimate.clocks.used),
    )
