"""The gate on simulated noise: which estimator holds its error rates, what the design buys, what looking early costs.

Standard library only, fixed seeds. Everything is in logarithms of time: a process has an effect of its own (memory
layout, clocks, luck), a round has a smaller one, and the machine drifts under all of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from aisp_mcp.judge import statistics as stats
from aisp_mcp.judge.presets import LATIN_SQUARE, PRESETS
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.statistics import PlannedLook
from aisp_mcp.judge.verdict.verdict import judge

Noise = Callable[[random.Random, float], float]
Bounds = tuple[float, float]
Estimator = Callable[[list[float], list[float]], Bounds]

EFFECTS = (0.0, 0.01, 0.02)
SPREAD = 0.004  # assumed sd between processes; it scales the effects that can be found, not the error rates
LEVEL = 0.95


def _student3(draw: random.Random) -> float:
    """Student's t with three degrees of freedom, scaled to a standard deviation of one."""
    chi_square = sum(draw.gauss(0, 1) ** 2 for _ in range(3))
    return draw.gauss(0, 1) / math.sqrt(chi_square / 3) / math.sqrt(3)


KINDS: dict[str, Noise] = {
    "normal": lambda draw, sd: draw.gauss(0, sd),
    "heavy tails (t3)": lambda draw, sd: sd * _student3(draw),
    "1 process in 10 slower by 8 sd": lambda draw, sd: draw.gauss(0, sd) + (8 * sd if draw.random() < 0.1 else 0.0),
    "two states 3 sd apart, 30:70": lambda draw, sd: draw.gauss(0, 0.3 * sd) + (3 * sd if draw.random() < 0.3 else 0.0),
}


# --- estimators: the interval for the mean (or median) log-ratio


def mean_t(ratios: list[float], _noise: list[float]) -> Bounds:
    """The one in use."""
    estimate = stats.t_interval(ratios, LEVEL)
    return estimate.low, estimate.high


def pooled_t(ratios: list[float], noise: list[float]) -> Bounds:
    """Variance from the candidate's log-ratios and the A/A differences together: 2n - 1 degrees of freedom."""
    n, mean = len(ratios), fmean(ratios)
    own, shared = (n - 1) * stdev(ratios) ** 2, 0.75 * math.fsum(x * x for x in noise)
    half = stats.t_quantile(0.5 + LEVEL / 2, 2 * n - 1) * math.sqrt((own + shared) / (2 * n - 1) / n)
    return mean - half, mean + half


def order_statistics(ratios: list[float], _noise: list[float]) -> Bounds:
    """The median's interval without assumptions; at n = 5 the extremes, which cover only 93.75 %."""
    numbers, level = sorted(ratios), LEVEL if len(ratios) >= 6 else 0.93
    count, rank, below = len(numbers), 0, 0.0
    while rank < count // 2 and 1.0 - 2.0 * (below + math.comb(count, rank) / 2**count) >= level:
        below += math.comb(count, rank) / 2**count
        rank += 1
    if not rank:
        raise ValueError(f"{count} values cannot cover the median at {level:.0%} without assumptions.")
    return numbers[rank - 1], numbers[count - rank]


def trimmed_t(ratios: list[float], _noise: list[float]) -> Bounds:
    """Yuen's interval for the mean trimmed by a fifth at each end."""
    n, cut = len(ratios), len(ratios) // 5
    ordered = sorted(ratios)
    middle = ordered[cut : n - cut]
    winsorised = [middle[0]] * cut + middle + [middle[-1]] * cut
    error = stdev(winsorised) / ((1 - 2 * cut / n) * math.sqrt(n))
    half = stats.t_quantile(0.5 + LEVEL / 2, len(middle) - 1) * error
    return fmean(middle) - half, fmean(middle) + half


ESTIMATORS: dict[str, Estimator] = {
    "t": mean_t,
    "pooled t": pooled_t,
    "order statistics": order_statistics,
    "trimmed t": trimmed_t,
}


def triples(
    draw: random.Random, noise: Noise, n: int, effect: float = 0.0, louder: float = 1.0
) -> tuple[list[float], list[float]]:
    """Log-ratios and A/A differences of n process triples. louder: the candidate's spread over the baseline's."""
    ratios, differences = [], []
    for _ in range(n):
        first, second = noise(draw, SPREAD), noise(draw, SPREAD)
        ratios.append((first + second) / 2 - noise(draw, louder * SPREAD) + math.log1p(effect))
        differences.append(first - second)
    return ratios, differences


def _claims(ratios: list[float], noise: list[float]) -> dict[str, bool]:
    """Estimators that would call these replicates different."""
    claims = {}
    for name, estimator in ESTIMATORS.items():
        low, high = estimator(ratios, noise)
        claims[name] = low > 0 or high < 0
    for name, margin in (("gate, margin 0", 0.0), ("gate, default margin", None)):
        claims[name] = judge(ratios, noise, margin=margin).verdict in ("faster", "slower")
    return claims


def estimators(trials: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Share of runs called different, by noise, number of replicates, true effect and estimator."""
    cases = [(name, noise, 1.0) for name, noise in KINDS.items()]
    cases.append(("normal, candidate 3 times louder", KINDS["normal"], 3.0))
    for name, noise, louder in cases:
        for n in (5, 10):
            for effect in EFFECTS:
                draw = random.Random(f"{seed} {name} {n} {effect}")
                counts: dict[str, int] = {}
                for _ in range(trials):
                    for who, claims in _claims(*triples(draw, noise, n, effect, louder)).items():
                        counts[who] = counts.get(who, 0) + claims
                rates = {who: round(count / trials, 4) for who, count in counts.items()}
                yield {"noise": name, "replicates": n, "effect": effect, "called_different": rates}


# --- design: what the order of rounds and the choice of replicate are worth

FIXED = (*LATIN_SQUARE[0], *LATIN_SQUARE[0][::-1])  # the same palindrome again and again


def _rotating(draw: random.Random, palindromes: int) -> list[Role]:
    """The roles as the product orders them."""
    preset = replace(PRESETS["default"], palindromes=palindromes)
    return [role for half in preset.half_palindromes(draw) for role in half]


def _rounds(draw: random.Random, order: Iterable[Role], drift: float, first: float = 0.0) -> list[tuple[Role, float]]:
    """One triple of identical programs: process effects, round noise, a linear drift and a random walk.

    first: extra time of the first round of each half palindrome, which follows a pause.
    """
    process = {role: draw.gauss(0, SPREAD) for role in Role}
    walk, rounds = 0.0, []
    for index, role in enumerate(order):
        walk += draw.gauss(0, 0.0005)
        late = first if index % 3 == 0 else 0.0
        rounds.append((role, math.exp(process[role] + drift * index + walk + late + draw.gauss(0, 0.003))))
    return rounds


def _sequential(rounds: list[tuple[Role, float]]) -> float:
    """The log-ratio if all rounds of one role ran before those of the next: same noise, other order."""
    third = len(rounds) // 3
    logs = [math.log(time) for _, time in rounds]
    return (fmean(logs[:third]) + fmean(logs[third : 2 * third])) / 2 - fmean(logs[2 * third :])


def design(trials: int, seed: int = 2, length: int = 9) -> dict[str, float]:
    """False alarms at nominal 5 % for identical programs under a drift of 0.01 % a round."""
    draw = random.Random(seed)
    blocks = [role for role in Role for _ in range(2 * length)]
    counts = dict.fromkeys(
        (
            "palindromes, processes",
            "one after the other, processes",
            "palindromes, rounds of one process",
            "one palindrome again and again, first rounds 1 % slower",
            "palindromes, first rounds 1 % slower",
        ),
        0,
    )
    for _ in range(trials):
        runs = [_rounds(draw, _rotating(draw, length), 1e-4) for _ in range(5)]
        counts["palindromes, processes"] += _different(runs)
        single = [stats.replicate_log_ratio(runs[0][i : i + 6]).log_ratio for i in range(0, 6 * length, 6)]
        counts["palindromes, rounds of one process"] += stats.t_interval(single).p_value < 0.05
        values = [_sequential(_rounds(draw, blocks, 1e-4)) for _ in range(5)]
        counts["one after the other, processes"] += stats.t_interval(values).p_value < 0.05
        slow = [_rounds(draw, FIXED * length, 1e-4, 0.01) for _ in range(5)]
        counts["one palindrome again and again, first rounds 1 % slower"] += _different(slow)
        slow = [_rounds(draw, _rotating(draw, length), 1e-4, 0.01) for _ in range(5)]
        counts["palindromes, first rounds 1 % slower"] += _different(slow)
    return {name: round(count / trials, 4) for name, count in counts.items()}


def _different(runs: list[list[tuple[Role, float]]]) -> bool:
    """True if the interval over these replicates excludes equality."""
    return stats.t_interval([stats.replicate_log_ratio(run).log_ratio for run in runs]).p_value < 0.05


def _disturbed(draw: random.Random, palindromes: int, effect: float) -> stats.ReplicateRatio:
    """One triple on a machine that disturbs one round in twelve by 8 % on average."""
    process = {role: draw.gauss(0, SPREAD / 2) for role in Role}
    process[Role.CANDIDATE] -= math.log1p(effect)
    rounds: list[tuple[Role, float]] = []
    for role in _rotating(draw, palindromes):
        burst = draw.expovariate(1 / 0.08) if draw.random() < 1 / 12 else 0.0
        rounds.append((role, math.exp(process[role] + draw.gauss(0, SPREAD) + burst)))
    return stats.replicate_log_ratio(rounds)


def palindromes(trials: int, seed: int = 5) -> Iterator[dict[str, Any]]:
    """Share of runs of five triples called different, by palindromes per triple."""
    for count in (1, 3, 6, 9, 15):
        for effect in EFFECTS:
            draw = random.Random(f"{seed} {count} {effect}")
            called = {"gate, margin 0": 0, "gate, default margin": 0}
            for _ in range(trials):
                runs = [_disturbed(draw, count, effect) for _ in range(5)]
                ratios, noise = [run.log_ratio for run in runs], [run.noise for run in runs]
                for who, margin in (("gate, margin 0", 0.0), ("gate, default margin", None)):
                    called[who] += judge(ratios, noise, margin=margin).verdict in ("faster", "slower")
            rates = {who: round(number / trials, 4) for who, number in called.items()}
            row = {"noise": "1 round in 12 disturbed", "palindromes": count, "effect": effect}
            yield {**row, "called_different": rates}


# --- looks


def _stop(run: tuple[list[float], list[float]], plan: list[PlannedLook], margin: float | None) -> tuple[bool, int]:
    """(called different, replicates used) under a plan."""
    ratios, noise = run
    for look in plan:
        n = look.replicates
        if judge(ratios[:n], noise[:n], margin=margin, level=look.level).verdict in ("faster", "slower"):
            return True, n
    return False, plan[-1].replicates


def _interval_alone(ratios: list[float], plan: list[PlannedLook]) -> bool:
    """Called different at any look by the interval without noise floor and margin."""
    return any(stats.t_interval(ratios[: look.replicates]).p_value < look.alpha for look in plan)


def early(trials: int, seed: int = 3, counts: tuple[int, ...] = (4, 6, 8, 10)) -> list[dict[str, Any]]:
    """Error, power and mean number of replicates of a plan with early stopping, against peeking at 5 % each time."""
    rows = []
    for name, noise in KINDS.items():
        for effect in (0.0, 0.01, 0.02, 0.10):
            draw = random.Random(f"{seed} {name} {effect}")
            plan = stats.looks(counts)
            peek = [PlannedLook(count, 0.05, 0.05) for count in counts]
            runs = [triples(draw, noise, counts[-1], effect) for _ in range(trials)]
            stops = [_stop(run, plan, None) for run in runs]
            rates = {
                "peeking, t": fmean(_interval_alone(run[0], peek) for run in runs),
                "looks, t": fmean(_interval_alone(run[0], plan) for run in runs),
                "looks, gate, margin 0": fmean(_stop(run, plan, 0.0)[0] for run in runs),
                "looks, gate, default margin": fmean(called for called, _ in stops),
            }
            rates = {who: round(rate, 4) for who, rate in rates.items()}
            used = round(fmean(used for _, used in stops), 2)
            rows.append({"noise": name, "effect": effect, "called_different": rates, "mean_replicates": used})
    return rows


def single_pair(trials: int, seed: int = 4) -> list[dict[str, Any]]:
    """One process triple: share called different, by noise and effect."""
    rows = []
    for name, noise in KINDS.items():
        for effect in (0.0, 0.02, 0.20, 1.0):
            draw, called = random.Random(f"{seed} {name} {effect}"), 0
            for _ in range(trials):
                called += judge(*triples(draw, noise, 1, effect)).verdict in ("faster", "slower")
            rows.append({"noise": name, "effect": effect, "called_different": round(called / trials, 4)})
    return rows


def simulate(trials: int) -> dict[str, Any]:
    """All tables."""
    return {
        "trials": trials,
        "process_sd": SPREAD,
        "estimators": list(estimators(trials)),
        "design": design(trials),
        "palindromes": list(palindromes(trials)),
        "looks": early(trials),
        "one_process_pair": single_pair(trials),
    }
