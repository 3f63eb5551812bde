"""Estimate of the overhead of CPU rounds. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from aisp_mcp.judge.evidence import Overhead, RoundCost


def fit_overhead(single: Sequence[RoundCost], dummy: Sequence[RoundCost], full: Sequence[RoundCost]) -> Overhead:
    """Fit the overhead from rounds of the baselines alone, whose clock the candidate cannot bend.

    single: rounds of one call. full: timed rounds. dummy: rounds with a dummy call; where there are any, they decide
    the cost per call, because the cost of copying depends on how much of the caches a call leaves.
    """
    fixed = min((max(elapsed - inside, 0.0) for elapsed, inside, _ in (*single, *dummy, *full)), default=0.0)
    rest, costs = ([max((e - inside - fixed) / n, 0.0) for e, inside, n in rounds] for rounds in (full, dummy))
    spread = costs or rest
    if len(spread) < 2:
        return Overhead(fixed, spread[0] if spread else 0.0)
    low, middle, high = statistics.quantiles(spread, n=4)
    known = [low, high, statistics.median(rest)] if costs and rest else [low, high]
    return Overhead(fixed, middle, (max(known) - min(known)) / 2)
