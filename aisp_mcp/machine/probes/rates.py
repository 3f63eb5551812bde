"""From samples to a rate with an interval that assumes no distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from aisp_mcp.machine.probes.records import Rate


def rate(samples: Sequence[float], confidence: float = 0.95) -> Rate:
    """Median, and the narrowest order-statistic interval that covers it with `confidence`; with few samples, their
    whole range.

    The interval [x(k), x(n+1-k)] covers the median with 1 - 2 P(Binomial(n, 1/2) < k); level is the coverage reached.
    Raises ValueError without samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered, n = sorted(samples), len(samples)
    k = 1
    while k + 1 <= n // 2 and _coverage(n, k + 1) >= confidence:
        k += 1
    return Rate(
        median=statistics.median(ordered),
        low=ordered[k - 1],
        high=ordered[n - k],
        level=round(_coverage(n, k), 4),
        rounds=n,
    )


def _coverage(n: int, k: int) -> float:
    """Probability that the median is between the k-th smallest and the k-th largest of n."""
    return max(0.0, 1.0 - sum(math.comb(n, i) for i in range(k)) * 0.5 ** (n - 1))
