"""What of a gain the parent's clock proves. Pure functions.

Copies of outputs are made in the candidate's own process, which may compute into the referee's memory instead. On a CPU
they are subtracted from its rounds, and rounds without copies tell whether it makes them (paid.py); on a GPU nothing is
subtracted, but rounds without copies are not to be had of every candidate (gate.py). Where nothing tells, because the
memory of workers cannot be read or a candidate gives back one buffer again and again, all copies count against it.

Short calls of a GPU are measured among others, which may be what makes them short. What is proven is what a call takes
by itself. On a CPU the loop around calls of some microseconds is a good part of them; then all of it counts against the
candidate, who could leave some of it out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from aisp_mcp.harness import rulers, stats, summary
from aisp_mcp.harness.replicate import Replicate
from aisp_mcp.harness.timing import CANDIDATE
from aisp_mcp.model.verdict import Flag

UNPROVEN = 0.95  # of a ratio: what may be lost of it before that is said
CLOCK = "proven"  # the name of this clock in a result


Used = Sequence[float]  # log-ratios per replicate on the clock that is about to be reported


def finding(replicates: Sequence[Replicate], used: Used, coarse: bool) -> Flag | None:
    """The finding that less is proven than is believed, if it is less than UNPROVEN of it: the smaller ratio counts.
    coarse: on a CPU, whether the parent's clock resolves such short calls badly.
    """
    least = math.exp(statistics.fmean(gain for gain, _ in ratios(replicates, used, coarse)))
    believed = math.exp(statistics.fmean(used))
    if least > UNPROVEN * believed:
        return None
    if _copies_unseen(replicates):
        code, why = "clock_disagreement", "that the candidate makes the copies of its outputs could not be seen"
    elif coarse:
        code, why = "parent_coarse", "so short calls rest on what is subtracted for the loop around them"
    else:
        code, why = "parent_coarse", "by itself a call does not save the rest"
    message = f"The parent's clock alone proves {least:.3g}x, not {believed:.3g}x: {why}, and the smaller counts."
    return Flag(code=code, severity="warn", message=message, evidence={"ratio_proven": least, "ratio": believed})


def _copies_unseen(replicates: Sequence[Replicate]) -> bool:
    return any(one.device.copying if one.device.alone else one.overhead.spared is None for one in replicates)


def ratios(replicates: Sequence[Replicate], used: Used, coarse: bool) -> list[tuple[float, float]]:
    """Per replicate (log-ratio, A/A log-ratio)."""
    found = []
    for one, on_device, claimed in zip(replicates, rulers.by_itself(replicates), used, strict=True):
        if on_device and one.device.copying:
            found.append(max(map(rulers.ratio, on_device)))
            continue
        reduced = (
            rulers.between(on_device, claimed, copying=False)
            if on_device
            else stats.replicate_log_ratio([(summary.LETTER[side], paid) for side, paid in _paid(one, coarse)])
        )
        found.append((reduced.log_ratio, reduced.noise))
    return found


def seconds(replicates: Sequence[Replicate], used: Used, coarse: bool) -> list[tuple[int, float]]:
    """(side, seconds per call): of all rounds, or on a GPU of each replicate's ruler that counts."""
    found: list[tuple[int, float]] = []
    proven = ratios(replicates, used, coarse)
    for one, on_device, (log_ratio, _) in zip(replicates, rulers.by_itself(replicates), proven, strict=True):
        found += rulers.nearest(on_device, log_ratio).items() if on_device else _paid(one, coarse)
    return found


def _paid(one: Replicate, coarse: bool) -> list[tuple[int, float]]:
    """Of each round on a CPU the side and its seconds per call, with nothing subtracted but from those who are known to
    have paid for it.
    """
    copies, fixed = one.overhead.per_call_s, one.overhead.fixed_s
    found = []
    for side, net, _, lap in one.rounds:
        all_s = min(net + copies, max(lap.elapsed_s - fixed, 0.0) / lap.count)
        unseen = side == CANDIDATE and (coarse or one.overhead.spared is None)
        found.append((side, max(all_s, net) if unseen else net))
    return found
