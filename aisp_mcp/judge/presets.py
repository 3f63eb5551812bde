"""Presets and what a kind of comparison makes of them, the order of rounds, and the number of calls to compare.

All functions are pure.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from aisp_mcp.judge.protocol.roles import Role as Role  # other features import it from here

ROUNDS_PER_PALINDROME = 2 * len(Role)
# The position of a round changes its time by some per cent, above all after a pause. In this Latin square, each
# role has each position equally often, and follows each other role equally often.
LATIN_SQUARE = (
    (Role.BASELINE, Role.CANDIDATE, Role.BASELINE_REPEAT),
    (Role.CANDIDATE, Role.BASELINE_REPEAT, Role.BASELINE),
    (Role.BASELINE_REPEAT, Role.BASELINE, Role.CANDIDATE),
)

# --- calibrated constants

# Per role on a GPU: rounds on the parent's clock, and calls compared in each. The median of three is robust to one
# outlier (decision 17). Comparisons in timed rounds make up the rest of samples(), so two are enough. Chosen.
GPU_ROUNDS, MIN_COMPARED_PER_GPU_ROUND = 3, 2
# Calls of a timed round on a GPU, at most: new inputs take 0.4 ms per call (H100). Ratios of calls of 8 to 40 µs varied
# as much with 5,000 calls as with 200, because processes differ more than calls.
GPU_CALLS = 250
# Calls of a timed round on a CPU, at most: new inputs of 64 elements take 0.15 ms per call, twenty times a short call.
CPU_CALLS = 600
# Share of wrong calls above which a comparison finds one, and the probability that it does not. Chosen
# (docs/harness.md): 147 calls are compared.
FOUND_SHARE, MISSED = 0.046, 0.001
# Seconds of a round of several ranks, which begins and ends on several processes; and its length over several nodes, in
# round trips, since it includes one. Chosen: a hundredth of a round is far below the 5 % that two clocks may differ by.
RANKS_ROUND_S, ROUND_TRIPS = 0.02, 100
# Calls of a round of several ranks, at most: new inputs took 1 ms per call (two H200), so the 270 calls of a candidate
# that was 60 times as fast as its baseline took 18 of 46 s.
RANKS_CALLS = 64
# Cold starts per timed replicate: a start yields one number per process, a timed replicate the median of rounds.
# COLD_MULTIPLE: of three, so that each role has each position equally often. Chosen.
COLD_MORE, COLD_MULTIPLE = 2.4, 3


@dataclass(frozen=True)
class Preset:
    """Amount of measurement. replicates: sets of processes; round_s: length of a round; palindromes: per replicate.

    Nine palindromes are three of each order: their median survives a disturbed round, and no role has a better position
    than another. looks: numbers of replicates after which the run may stop early; the last one is the full number.
    elsewhere: minimum number of compared calls per replicate in other counted rounds. max_calls: of a round.
    isolated_rounds: of isolated calls per replicate and role, on a CPU; their lower quartile counts.
    """

    name: str
    replicates: int
    round_s: float
    palindromes: int = 9
    looks: tuple[int, ...] = ()
    elsewhere: int = 0
    max_calls: int = sys.maxsize
    isolated_rounds: int = 5

    @property
    def first_look(self) -> int:
        """The smallest number of replicates after which a run may end."""
        return self.looks[0] if self.looks else self.replicates

    def for_gpu(self) -> Preset:
        """The same preset for a GPU: a third as many rounds, each half as long again.

        On a GPU, a round has a higher start-up cost, flushes stretch its calls, and device events vary less. These
        rounds prove nothing without the agreement of the parent-timed rounds (timing/gpu/schedule.py), so calls of both
        kinds are compared.
        """
        elsewhere = GPU_ROUNDS * MIN_COMPARED_PER_GPU_ROUND
        return replace(
            self,
            round_s=1.5 * self.round_s,
            palindromes=math.ceil(self.palindromes / 3),
            elsewhere=elsewhere,
            max_calls=GPU_CALLS,
        )

    @property
    def compared(self) -> int:
        """Comparisons in a replicate's timed rounds, at least one per round of the candidate.

        Over all replicates, they are enough even if the first look ends the run.
        """
        return max(math.ceil(samples() / self.first_look) - self.elsewhere, 2 * self.palindromes)

    def comparisons_per_round(self, draw: random.Random) -> list[int]:
        """The number of comparisons in each round of the candidate; rounds with one more are drawn at random."""
        rounds = 2 * self.palindromes
        each, more = divmod(self.compared, rounds)
        return draw.sample([each + 1] * more + [each] * (rounds - more), rounds)

    def half_palindromes(self, draw: random.Random) -> Iterator[tuple[Role, ...]]:
        """The roles in the order of their rounds, half a palindrome at a time.

        One palindrome: baseline, candidate, baseline repeat, baseline repeat, candidate, baseline.

        A palindrome cancels linear drift. The orders come from the Latin square, shuffled, and equally often if the
        number of palindromes is a multiple of three.
        """
        orders: list[tuple[Role, ...]] = []
        while len(orders) < self.palindromes:
            orders += draw.sample(LATIN_SQUARE, len(LATIN_SQUARE))
        for order in orders[: self.palindromes]:
            yield order
            yield order[::-1]


# Rounds of 6 ms: the ends of a round take 0.2 to 0.4 ms on the parent's clock (decision 18). Looks: decision 7.
PRESETS = {
    "quick": Preset("quick", 1, 0.006),
    "default": Preset("default", 5, 0.006),
    "release": Preset("release", 10, 0.006, 27, looks=(4, 6, 8, 10)),
}


Place = Literal["cpu", "cuda", "ranks"]  # where a program runs: on a CPU, on a GPU, or as several ranks


def for_kind(
    preset: Preset, place: Place, goal: str = "speed", round_trips_s: Sequence[float] = (), call_s: float = 0.0
) -> Preset:
    """The preset as this kind of comparison uses it. round_trips_s: to each other node. call_s: of the baseline.

    | kind | what changes |
    | --- | --- |
    | speed of one process on a CPU | at most CPU_CALLS calls in a round |
    | one process on a GPU | fewer and longer rounds, at most GPU_CALLS calls, comparisons in the parent's own rounds |
    | several ranks | at most RANKS_CALLS calls in rounds of RANKS_ROUND_S, and of ROUND_TRIPS round trips at least |
    | several ranks, calls longer than a round | a third as many rounds: the floor was 0.2 % at 178 ms (two H200) |
    | cold starts | COLD_MORE times as many replicates |
    """
    if place == "cpu" and goal == "speed":
        preset = replace(preset, max_calls=min(preset.max_calls, CPU_CALLS))
    elif place == "ranks":
        round_s = max(RANKS_ROUND_S, *(ROUND_TRIPS * trip_s for trip_s in (0.0, *round_trips_s)))
        preset = replace(preset, round_s=round_s, max_calls=min(preset.max_calls, RANKS_CALLS))
        if call_s > round_s:
            preset = replace(preset, palindromes=math.ceil(preset.palindromes / 3))
    elif place == "cuda":
        preset = preset.for_gpu()
    if goal == "cold":
        looks = tuple(map(cold_replicates, preset.looks))
        preset = replace(preset, replicates=cold_replicates(preset.replicates), looks=looks)
    return preset


def cold_replicates(usual: int) -> int:
    """Number of replicates of cold starts, given the usual number for timed calls."""
    return COLD_MULTIPLE * math.ceil(COLD_MORE * usual / COLD_MULTIPLE)


def estimate_s(preset: Preset, call_s: float = 0.001, start_s: float = 1.0) -> float:
    """Upper estimate of the wall seconds of one pair: starts, rounds, and verification at about five calls per
    comparison.

    Measured on two cores, where three forks of a process with torch loaded take up to 1 s to start concurrently.
    """
    rounds = ROUNDS_PER_PALINDROME * preset.palindromes + 40
    checks = sum(preset.comparisons_per_round(random.Random(0))) + 2 * preset.palindromes + 20
    return start_s + preset.replicates * (start_s + 1.5 * rounds * max(preset.round_s, call_s) + checks * 5 * call_s)


def most_calls(call_s: float, round_s: float, capacity: int) -> int:
    """The number of calls that fill round_s."""
    return max(1, min(capacity, round(round_s / max(call_s, 1e-9))))


def draw_count(most: int, draw: random.Random) -> int:
    """A random number of calls, up to a tenth less than the most, so no program knows which call is its last."""
    return draw.randint(max(1, most - most // 10), most)


def round_count(call_s: float, round_s: float, capacity: int, draw: random.Random) -> int:
    """A random number of calls that about fill round_s."""
    return draw_count(most_calls(call_s, round_s, capacity), draw)


def sample_calls(count: int, size: int, draw: random.Random) -> list[int]:
    """Indices of the calls of a round to compare in full; no worker knows them."""
    return sorted(draw.sample(range(count), min(size, count)))


def undetected_share(checked: int, calls: int, risk: float = MISSED) -> float:
    """The largest share of wrong calls that `checked` random comparisons would all miss with probability `risk`."""
    if checked >= calls:
        return 0.0
    return float(1.0 - risk ** (1.0 / checked)) if checked else 1.0


def samples(share: float = FOUND_SHARE) -> int:
    """Number of comparisons that a share of wrong calls above `share` escapes with probability MISSED at most."""
    needed = 1
    while undetected_share(needed, needed + 1) > share:
        needed += 1
    return needed
