"""Lengths of the requests that a server answers: one pair, a spread around two means, or a list of pairs."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import UsageError
from aisp_mcp.records import Record

Scenario = Literal["offline", "server", "interactive"]
MOST_PAIRS = 200
LONGEST = 10_000_000
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)


class Lengths(Record):
    """Moments of the distribution of prompt and output lengths on which the rate depends."""

    prompt: float = Field(description="Mean prompt tokens.")
    output: float = Field(description="Mean output tokens.")
    context: float = Field(description="Mean tokens in the cache of a sequence that is being answered.")
    prompt_squared: float = Field(description="Mean of the squared prompt length: the work of causal attention.")
    longest: int = Field(description="Prompt and output of the longest request.")


def lengths(prompt: int, output: int, spread: float = 0.0, pairs: str | None = None) -> Lengths:
    """Moments of a workload. spread: standard deviation over mean of both lengths, log-normal and independent.

    pairs: "prompt:output" or "prompt:output:weight", separated by commas; replaces the other three. Raises UsageError
    BAD_LENGTHS.
    """
    statistics = (
        _parsed(pairs)
        if pairs is not None
        else [(p, o, 1.0) for p, o in itertools.product(_grid(prompt, spread), _grid(output, spread))]
    )
    total = math.fsum(w for _, _, w in statistics)
    mean_output = math.fsum(o * w for _, o, w in statistics) / total
    return Lengths(
        prompt=math.fsum(p * w for p, _, w in statistics) / total,
        output=mean_output,
        context=math.fsum((p + o / 2) * o * w for p, o, w in statistics) / total / mean_output,
        prompt_squared=math.fsum(p * p * w for p, _, w in statistics) / total,
        longest=math.ceil(max(p + o for p, o, _ in statistics)),
    )


def _grid(mean: int, spread: float) -> list[float]:
    """Five equally likely lengths of a log-normal distribution, scaled to the mean."""
    if spread == 0:
        return [float(mean)]
    sigma = math.sqrt(math.log(1 + spread * spread))
    normal = statistics.NormalDist()
    values = [math.exp(sigma * normal.inv_cdf(q)) for q in QUANTILES]
    return [max(1.0, mean * value / statistics.fmean(values)) for value in values]


def _parsed(text: str) -> list[tuple[float, float, float]]:
    try:
        parts = [[float(x) for x in item.split(":")] for item in text.split(",")]
        rows = [(p[0], p[1], p[2] if len(p) == 3 else 1.0) for p in parts if len(p) in (2, 3)]
    except ValueError:
        rows, parts = [], []
    good = all(1 <= p <= LONGEST and 1 <= o <= LONGEST and 0 < w < math.inf for p, o, w in rows)
    if not rows or len(rows) != len(parts) or len(rows) > MOST_PAIRS or not good:
        raise UsageError(
            "BAD_LENGTHS",
            f"lengths '{text[:80]}' is not a list of prompt:output or prompt:output:weight.",
            "Such as 128:64,2048:512:0.1 with positive numbers.",
        )
    return rows
