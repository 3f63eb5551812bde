"""Combinations of optimisations, only where A, B and A+B were all measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.judge.records.verdict import NO_TIME
from aisp_mcp.records import Record
from aisp_mcp.runs.analysis.variants import MeasuredPair

Interaction = Literal["synergy", "independent", "interference", "undecided"]
NARROW = 0.05  # if the interval of the interaction is within this of 1, they are independent
DEFINITION = (
    "expected = ratio A x ratio B, the gain of two optimisations that do not touch each other. interaction = measured "
    "A+B over expected, its interval from the three intervals in root-sum-square of logarithms. synergy and "
    "interference: the interval excludes 1. independent: it is within 5 % of 1. combine: the interval of A+B is "
    "above that of the better single one. A+B is found by name (`fused_tf32` combines `fused` and `tf32`) or named."
)


class Stack(Record):
    """Two optimisations of one target on one machine, alone and together."""

    machine: str
    a: str
    b: str
    both: str
    ratio_a: float
    ratio_b: float
    ratio_both: float
    interaction: float
    interval: list[float] = Field(description="Of the interaction, 95 %.")
    kind: Interaction
    combine: bool | None = Field(description="None where the intervals overlap.")
    sentence: str


def stacks(pairs: Sequence[MeasuredPair], named: tuple[str, str, str] | None = None) -> list[Stack]:
    """All triples A, B, A+B among the pairs, or the named one; largest measured gain first."""
    groups: dict[tuple[str, str], dict[str, MeasuredPair]] = {}
    for pair in pairs:
        if pair.goal not in NO_TIME and pair.ratio and pair.ratio_low and pair.ratio_high:
            groups.setdefault((pair.target, pair.candidate.machine), {})[pair.name] = pair
    all_stacks = []
    for (target, _), group in groups.items():
        for a, b, both in [named] if named else triples(target, group):
            if a in group and b in group and both in group:
                all_stacks.append(_stack(group[a], group[b], group[both]))
    return sorted(all_stacks, key=lambda s: -s.ratio_both)


def triples(target: str, names: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """(a, b, a_b) by name; a variant of two words of which only one exists is not a combination."""
    short = {name.removeprefix(f"{target}_"): name for name in names if name != target}
    all_triples = []
    for both in short:
        for a in short:
            b = both.removeprefix(f"{a}_")
            if both.startswith(f"{a}_") and b in short:
                all_triples.append((short[a], short[b], short[both]))
    return all_triples


def _stack(a: MeasuredPair, b: MeasuredPair, both: MeasuredPair) -> Stack:
    parts = [_log(pair) for pair in (a, b, both)]
    mean = parts[2][0] - parts[0][0] - parts[1][0]
    half = math.hypot(*(part[1] for part in parts))
    low, high = math.exp(mean - half), math.exp(mean + half)
    kind = _kind(low, high)
    single = max((a, b), key=lambda pair: pair.ratio or 0.0)
    assert both.ratio_low is not None
    assert both.ratio_high is not None
    assert single.ratio_low is not None
    assert single.ratio_high is not None
    apart = True if both.ratio_low > single.ratio_high else False if both.ratio_high < single.ratio_low else None
    ratios = [math.exp(part[0]) for part in parts]
    expected = ratios[0] * ratios[1]
    return Stack(
        machine=a.candidate.machine, a=a.name, b=b.name, both=both.name,
        ratio_a=ratios[0], ratio_b=ratios[1], ratio_both=ratios[2],
        interaction=math.exp(mean), interval=[low, high], kind=kind, combine=apart,
        sentence=f"{kind}: together {ratios[2]:.3g}x, {expected:.3g}x expected of two that do not interact",
    )  # fmt: skip


def _log(pair: MeasuredPair) -> tuple[float, float]:
    """(log ratio, half-width of its interval)."""
    assert pair.ratio
    assert pair.ratio_low
    assert pair.ratio_high
    return math.log(pair.ratio), (math.log(pair.ratio_high) - math.log(pair.ratio_low)) / 2


def _kind(low: float, high: float) -> Interaction:
    if low > 1:
        return "synergy"
    if high < 1:
        return "interference"
    return "independent" if low >= 1 / (1 + NARROW) and high <= 1 + NARROW else "undecided"
