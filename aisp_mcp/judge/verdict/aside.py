"""Time that a candidate spends on values beside its calls: while inputs become arguments, and outputs become tensors.

Lists are made of the harness's tensors before the clock starts, and tensors of a function's results after it has
stopped. Baselines and candidate convert equal values, so what a candidate takes longer than the baselines is work that
it has moved there, and counts as time of its calls. Two processes of one program differ in this by some per cent, which
may be as much as a call takes: a list of 200,000 numbers is made in 5 ms and added up in 0.7. So a difference counts
beyond the noise floor of the baselines' own, over all replicates. All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.evidence import Replicate, SecondsByRole, baseline_s
from aisp_mcp.judge.protocol.roles import BASELINES, Role

ASIDE_S = 50e-6  # of a round of 6 ms, in which conversions may take longer by chance


def counted(replicates: Sequence[Replicate]) -> list[Replicate]:
    """The replicates, with the time that the candidate spent beside its calls added to its rounds, on the parent's
    clock.
    """
    longer_s = _longer_s([_conversions_s(replicate) for replicate in replicates])
    return [
        replace(
            replicate,
            rounds=[
                replace(row, net_s=row.net_s + max(longer_s - ASIDE_S / row.timing.count, 0.0))
                if row.role is Role.CANDIDATE
                else row
                for row in replicate.rounds
            ],
        )
        for replicate in replicates
    ]


def _longer_s(rows: Sequence[SecondsByRole]) -> float:
    """Seconds by which the candidate exceeds the baselines, beyond the noise floor; 0 where nothing is converted."""
    apart = [row[BASELINES[0]] - row[BASELINES[1]] for row in rows]
    if not any(apart):
        return 0.0
    longer_s = statistics.fmean(row[Role.CANDIDATE] - baseline_s(row) for row in rows)
    return max(longer_s - stats.noise_floor(apart).half_width, 0.0)


def _conversions_s(replicate: Replicate) -> SecondsByRole:
    """Seconds per call of each role: of arguments, in halves of palindromes in which all roles made as many of the same
    inputs, and had before, since they are made in the memory of earlier ones; and of outputs in all rounds.
    """
    rows, settling_s = [(row.role, row.timing) for row in replicate.rounds], replicate.overhead.settling_s
    halves = [dict(rows[begin : begin + len(Role)]) for begin in range(0, len(rows), len(Role))]
    alike = [len(half) == len(Role) and len({timing.converted for timing in half.values()}) == 1 for half in halves]
    compared = [half for half, *both in zip(halves[1:], alike, alike[1:], strict=False) if all(both)]
    return {
        role: _median(half[role].converted_s / max(half[role].converted, 1) for half in compared)
        + _median(max(timing.settled_s - settling_s, 0.0) / timing.count for row, timing in rows if row is role)
        for role in Role
    }


def _median(seconds: Iterable[float]) -> float:
    return statistics.median([*seconds] or [0.0])
