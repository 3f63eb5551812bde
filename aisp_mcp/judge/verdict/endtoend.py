"""The verdict on a pair inside its user's program. Pure functions.

With the share s of the program's time and the ratio r that was measured alone, the program should run
1 / (1 - s + s / r) times as fast. The program's own ratio is judged as that of any pair, and laid beside what
was measured alone:

    faster, slower     arrives, if the pair alone changed in the same direction; otherwise does not arrive
    same               too small, if no more than the margin was predicted
    or inconclusive    not shown, if the prediction lies in the program's interval; otherwise does not arrive
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aisp_mcp.judge.records.endtoend import EndToEnd
from aisp_mcp.judge.records.verdict import Verdict
from aisp_mcp.judge.verdict import wording
from aisp_mcp.judge.verdict.verdict import MIN_MARGIN, Judgement, judge

Arrival = Literal["arrives", "does not arrive", "too small", "not shown"]
_CHANGED = (Verdict.FASTER, Verdict.SLOWER)


@dataclass(frozen=True)
class Alone:
    """The pair measured alone. verdict: its word, which may be one of a workload."""

    verdict: str
    ratio: float | None


@dataclass(frozen=True)
class Inside:
    """Measurements in the program. log_ratios, noise: per replicate, positive where the candidate is better. before,
    after: medians of the metric. share, calls, in_place: None if they are not known.
    """

    program: str
    place: str
    metric: str
    log_ratios: Sequence[float]
    noise: Sequence[float]
    before: float
    after: float
    runs: int
    share: float | None = None
    calls: float | None = None
    in_place: float | None = None
    notes: Sequence[str] = ()


def conclude(alone: Alone, inside: Inside, margin: float | None = None) -> EndToEnd:
    """The verdict on the program, beside that on the pair."""
    is_exact = not any(inside.noise)  # a program may print a count
    outcome = judge(inside.log_ratios, inside.noise, margin=margin, counted=is_exact)
    predicted = predict(inside.share, alone.ratio)
    arrival = _arrival(alone, outcome, predicted, margin)
    passed = {Verdict.SLOWER: False, Verdict.INCONCLUSIVE: None}.get(outcome.verdict, True)
    return EndToEnd(
        program=inside.program, place=inside.place, metric=inside.metric, verdict=outcome.verdict.value,
        arrival=arrival, passed=passed, sentence=_sentence(alone, inside, outcome, predicted, arrival),
        alone=alone.ratio, ratio=outcome.ratio, interval=outcome.interval, noise_floor=outcome.noise_floor,
        predicted=predicted, share=inside.share, calls=inside.calls, in_place=inside.in_place, before=inside.before,
        after=inside.after, runs=inside.runs, notes=list(inside.notes),
    )  # fmt: skip


def failed(alone: Alone, program: str, place: str, metric: str, message: str) -> EndToEnd:
    """The verdict on a candidate with which the program does not run."""
    ratio = f"{_times(alone.ratio)} alone; " if alone.ratio else ""
    return EndToEnd(program=program, place=place, metric=metric, verdict="failed", arrival="does not arrive",
                    passed=False, sentence=f"failed: {ratio}{message}", alone=alone.ratio, ratio=None, interval=None,
                    noise_floor=None)  # fmt: skip


def predict(share: float | None, ratio: float | None) -> float | None:
    """The program's ratio by Amdahl's law."""
    return None if share is None or not ratio else 1 / (1 - share + share / ratio)


def _arrival(alone: Alone, outcome: Judgement, predicted: float | None, margin: float | None) -> Arrival:
    if outcome.verdict in _CHANGED:
        is_same_sign = alone.ratio is not None and (alone.ratio > 1) == (outcome.verdict is Verdict.FASTER)
        return "arrives" if is_same_sign else "does not arrive"
    if predicted is None:
        return "does not arrive" if outcome.verdict is Verdict.SAME and alone.verdict in _CHANGED else "not shown"
    if abs(math.log(predicted)) <= math.log1p(margin or MIN_MARGIN):
        return "too small"
    interval = outcome.interval
    return "not shown" if interval is None or interval.low <= predicted <= interval.high else "does not arrive"


def _sentence(alone: Alone, inside: Inside, outcome: Judgement, predicted: float | None, arrival: Arrival) -> str:
    kind = "gain" if (alone.ratio or 1.0) >= 1 else "loss"
    where = "program" if inside.metric == "time" else inside.metric
    where = "step" if inside.calls is not None and inside.program.endswith("()") else where
    ends = f" ({outcome.interval.low:.3g}-{outcome.interval.high:.3g})" if outcome.interval else ""
    parts = [f"{_times(alone.ratio)} alone, {where} {_times(outcome.ratio)}{ends}"]
    if inside.share is not None and predicted is not None:
        calls = f" in {inside.calls:.4g} calls" if inside.calls else ""
        parts.append(f"predicted {_times(predicted)} from {wording.format_percent(inside.share)} of its time{calls}")
    said = {
        "arrives": f"the {kind} arrives",
        "does not arrive": f"the {kind} does not arrive",
        "too small": f"the {kind} is too small to show there",
        "not shown": f"noise hides whether the {kind} arrives",
    }
    if inside.in_place is not None and _disagrees(alone.ratio, inside.in_place):
        parts.append(f"one call there is {_times(inside.in_place)}")
    return f"{outcome.verdict.value}: {'; '.join([*parts, said[arrival]])}"


def _disagrees(alone: float | None, in_place: float) -> bool:
    """Return True if calls in the program differ in sign from those alone by more than a few per cent."""
    return (bool(alone) and (alone or 1.0) > 1.0 > in_place * 1.05) or (alone or 1.0) < 1.0 < in_place / 1.05


def _times(ratio: float | None) -> str:
    return f"{wording.format_ratio(math.log(ratio))}x" if ratio else "unknown"
