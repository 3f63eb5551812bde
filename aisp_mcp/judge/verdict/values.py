"""A gain that depends on the values of the inputs: the ratio on each kind of inputs beside that on plain ones.

A program may be quick on the values that are timed, and only there: a series that ends early where all values are
small, a branch for inputs without outliers. After the timed rounds of each replicate all roles are timed on the other
kinds of inputs as well, which the contract contains. What holds on all of them is the gain. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.protocol.draws.rng import BEYOND
from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Flag, Verdict
from aisp_mcp.judge.verdict import wording

# Log-ratios by which a kind must be worse than plain inputs, in every replicate, and in a single one. Chosen: rounds on
# a kind are few and short, and programs whose work does not depend on values differed by less.
WORSE, WORSE_ALONE = math.log(1.1), math.log(1.3)
# Times the difference of the two baselines on the same inputs, or that of the candidate between its first and its last
# rounds, in addition. Calls of a much faster candidate fill a round that is hardly longer than its start and end.
NOISE = 2.0
# Kinds that are named and decide nothing: arithmetic on subnormal and infinite numbers depends on the processor's modes
# more than on the program, and what lies beyond a declared range is no part of the contract.
NAMED_ONLY = ("tiny", "huge", BEYOND)
CODE = "value_dependent"


def looks_worse(seconds: Sequence[float], plain: Sequence[float]) -> bool:
    """Return True if the candidate may gain less on a kind than on plain inputs, or if the baselines differ so much
    that these rounds do not show it. seconds: of the baseline, its repeat, and the candidate in rounds that followed
    each other.
    """
    return -_change(seconds, plain) > WORSE - _apart(seconds[:2])


def is_worse(seconds: Sequence[float], plain: Sequence[float], least: float = WORSE) -> bool:
    """Return True if one replicate shows that the candidate gains less on a kind than on plain inputs, beyond noise.
    least: by how much.
    """
    return -_change(seconds, plain) > least + NOISE * max(_noise(seconds), _noise(plain))


def worse_kinds(replicates: Sequence[Replicate]) -> dict[str, float]:
    """Log-ratio less that on plain inputs, of the kinds on which every replicate that has timed them is worse."""
    found: dict[str, list[tuple[Sequence[float], Sequence[float]]]] = {}
    for replicate in replicates:
        for name, seconds in replicate.kinds.items():
            if name != "plain":
                found.setdefault(name, []).append((seconds, replicate.kinds["plain"]))
    return {
        name: fmean(_change(*each) for each in timed)
        for name, timed in found.items()
        if all(is_worse(*each, WORSE if len(timed) > 1 else WORSE_ALONE) for each in timed)
    }


def _change(seconds: Sequence[float], plain: Sequence[float]) -> float:
    return _log_ratio(seconds) - _log_ratio(plain)


def _log_ratio(seconds: Sequence[float]) -> float:
    first, repeat, *candidate = map(math.log, seconds)
    return (first + repeat) / 2 - min(candidate)


def _noise(seconds: Sequence[float]) -> float:
    return max(_apart(seconds[:2]), _apart(seconds[2:]))


def _apart(seconds: Sequence[float]) -> float:
    return math.log(max(seconds) / min(seconds))


def on_all_kinds(result: Comparison, replicates: Sequence[Replicate]) -> Comparison:
    """The comparison, with the gain that holds on all kinds of inputs, if that on plain ones is larger."""
    worse = worse_kinds(replicates) if result.verdict is Verdict.FASTER and result.ratio else {}
    if not worse or not result.ratio:
        return result
    ratios = {name: result.ratio * math.exp(change) for name, change in worse.items()}
    deciding = {name: ratio for name, ratio in ratios.items() if name not in NAMED_ONLY}
    message = wording.gain_depends_on_values(result.ratio, ratios)
    flag = Flag(code=CODE, severity="warn", message=message, evidence={"plain": result.ratio, **ratios})
    update: dict[str, Any] = {"flags": [*result.flags, flag]}
    if not deciding:
        return result.model_copy(update={**update, "sentence": f"{result.sentence}; {wording.as_clause(message)}"})
    ratio, interval = min(deciding.values()), result.interval
    margin = result.margin or 0.0
    verdict = Verdict.FASTER if ratio > 1 + margin else Verdict.INCONCLUSIVE
    but = [name for name in ratios if name in NAMED_ONLY and ratios[name] < ratio]
    sentence = wording.on_all_kinds(verdict, ratio, message, result.verification, margin=margin, but=but)
    update |= {"verdict": verdict, "ratio": ratio, "sentence": sentence}
    if interval:
        share = ratio / result.ratio
        update["interval"] = Interval(low=interval.low * share, high=interval.high * share, level=interval.level)
    return result.model_copy(update=update)
