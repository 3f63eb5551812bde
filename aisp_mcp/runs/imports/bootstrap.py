"""Bootstrap interval of a ratio of medians, for samples of any number.

The median of a resample is an order statistic, so its index is drawn from a beta distribution instead of drawing the
resample: exact, and as fast for 10,000 samples as for ten.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

MIN_SAMPLES = 6  # with fewer, even the range of all samples covers the median in less than 95 % of cases
RESAMPLES = 2000
LEVEL = 0.95


def ratio_interval(baseline: Sequence[float], candidate: Sequence[float]) -> tuple[float, float] | None:
    """95 % percentile interval of median(candidate) / median(baseline); None below MIN_SAMPLES or for a median of 0."""
    if min(len(baseline), len(candidate)) < MIN_SAMPLES:
        return None
    draw = random.Random(0)  # the same files always give the same interval
    below, above = sorted(baseline), sorted(candidate)
    ratios = list[float]()
    for _ in range(RESAMPLES):
        divisor = _resampled_median(below, draw)
        if not divisor:
            return None
        ratios.append(_resampled_median(above, draw) / divisor)
    ratios.sort()
    tail = round((1 - LEVEL) / 2 * RESAMPLES)
    return ratios[tail], ratios[-1 - tail]


def _resampled_median(values: Sequence[float], draw: random.Random) -> float:
    """Median of a resample of sorted values with replacement."""
    count = len(values)
    middle = (count + 1) // 2
    position = draw.betavariate(middle, count + 1 - middle)
    lower = values[min(count - 1, int(position * count))]
    if count % 2:
        return lower
    position += (1 - position) * draw.betavariate(1, count - middle)
    return (lower + values[min(count - 1, int(position * count))]) / 2
