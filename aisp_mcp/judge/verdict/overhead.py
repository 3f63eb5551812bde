"""Estimate of the overhead of CPU rounds. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from aisp_mcp.judge.evidence import Overhead, RoundCost


def fit_overhead(rounds: Sequence[RoundCost]) -> Overhead:
    """Fit the overhead to rounds of the baselines only, since the candidate cannot influence their clock.

    rounds: of one call, which show the fixed cost, and of several, which show the additional cost per call.
    """
    beyond = [(max(elapsed - inside, 0.0), calls) for elapsed, inside, calls in rounds]
    single = [seconds for seconds, calls in beyond if calls == 1]
    fixed = statistics.median(single) if single else min((seconds for seconds, _ in beyond), default=0.0)
    more = [(seconds - fixed) / (calls - 1) for seconds, calls in beyond if calls > 1]
    per_call = max(statistics.median(more), 0.0) if single and more else 0.0
    return Overhead(max(fixed - per_call, 0.0), per_call)
