"""Scaling over workers (Amdahl, USL) or over problem sizes (power law), with the law that predicts unseen points.

The laws are fitted by least squares, with residuals and leave-one-out error, in pure Python: points are few.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from aisp_mcp.errors import Unavailable, UsageError
from aisp_mcp.records import Record
from aisp_mcp.runs import stored
from aisp_mcp.runs.analysis.variants import BROKEN, machine
from aisp_mcp.server.context import Context

Over = Literal["workers", "size"]
EXACT, CLEARLY = 1e-6, 0.9  # smaller errors count as zero; another law must be better by this factor
DEFINITIONS = {
    "workers": "Throughput over workers (GPUs, ranks, threads). efficiency = X(n) / (n X(1)) by the fitted X(1).",
    "size": "Seconds per call over elements of the largest input. exponent 1 is linear in size.",
}


class Scaling(Record):
    """Measured points, every law that fits them, and the law with the smallest error on points it was not fitted to."""

    label: str
    over: Over
    points: list[tuple[float, float]] = Field(description="(n, throughput) over workers, (n, seconds) over sizes.")
    fits: list[Fit]
    best: str = Field(description="The simplest law, unless another predicts left-out points clearly better.")
    efficiency: list[float] = Field(default_factory=list, description="Over workers: share of linear scaling.")
    sentence: str


def over_workers(label: str, points: Sequence[tuple[float, float]]) -> Scaling:
    """Fit points (workers, throughput). Raises ValueError with fewer than 2 different counts."""
    ordered = sorted(points)
    candidates = [amdahl(ordered)]
    if len({n for n, _ in ordered}) >= 3:
        candidates.append(usl(ordered))
    best = _best(candidates)
    rate = best.parameters["rate_1"]
    return Scaling(
        label=label,
        over="workers",
        points=ordered,
        fits=candidates,
        best=best.law,
        efficiency=[round(x / (n * rate), 4) for n, x in ordered],
        sentence=_sentence(best, ordered[-1][0]),
    )


def over_sizes(label: str, points: Sequence[tuple[float, float]]) -> Scaling:
    """Fit points (elements, seconds). Raises ValueError with fewer than 2 different sizes."""
    fit = power(sorted(points))
    of_two = len({size for size, _ in points}) == 2
    error = "through two sizes; a third would test it" if of_two else f"RMS error {100 * fit.rms_error:.2g} %"
    sentence = f"time grows as size^{fit.parameters['exponent']:.3g}, {error}"
    return Scaling(label=label, over="size", points=sorted(points), fits=[fit], best=fit.law, sentence=sentence)


def _best(candidates: Sequence[Fit]) -> Fit:
    """The best law. Candidates come with the simplest first; another one must predict unseen points clearly better."""
    best = candidates[0]
    for fit in candidates[1:]:
        if fit.left_out_error is None or best.left_out_error is None:
            continue
        if best.left_out_error > EXACT and fit.left_out_error < CLEARLY * best.left_out_error:
            best = fit
    return best


def _sentence(fit: Fit, largest: float) -> str:
    error = f"RMS error {100 * fit.rms_error:.2g} %"
    if fit.law == "amdahl":
        serial = fit.parameters["serial_fraction"]
        limit = f"at most {1 / serial:.3g}x with any number of workers" if serial > 0 else "no serial part seen"
        return f"amdahl: serial fraction {100 * serial:.3g} %, {limit}, {error}"
    peak = f"throughput peaks at {fit.at_best:.3g} workers" if fit.at_best else "no peak"
    beyond = ", beyond the measured counts" if fit.at_best and fit.at_best > largest else ""
    a, b = fit.parameters["contention"], fit.parameters["coherency"]
    return f"usl: contention {a:.3g}, coherency {b:.3g}, {peak}{beyond}, {error}"


# --- points for scaling fits: given by the caller, or from stored runs of one program at several sizes


_LEAST, _MOST = 1e-12, 1e15  # beyond this, the fit's squares overflow
_EXAMPLE = "aisp bench scaling --workers 1 2 4 8 --throughput 100 190 350 600"


def given(n: Sequence[float], throughput: Sequence[float], time_s: Sequence[float]) -> Scaling:
    """A fit over workers. Raises UsageError BAD_POINTS."""
    if bool(throughput) == bool(time_s) or len(n) != len(throughput or time_s):
        raise UsageError("BAD_POINTS", "Give n, and throughput or time_s, of equal length.", _EXAMPLE)
    every = [*n, *throughput, *time_s]
    if min(every) <= 0 or len(set(n)) < 2:
        raise UsageError("BAD_POINTS", "A fit needs positive values at two different n at least.", _EXAMPLE)
    if min(every) < _LEAST or max(every) > _MOST:
        raise UsageError("BAD_POINTS", f"Values must be between {_LEAST:g} and {_MOST:g}.", _EXAMPLE)
    rates = throughput or [1 / seconds for seconds in time_s]
    try:
        return over_workers("given", list(zip(n, rates, strict=True)))
    except (OverflowError, ZeroDivisionError) as error:
        text = f"No law fits points this far apart: {error}."
        raise UsageError("BAD_POINTS", text, _EXAMPLE) from None


def of_runs(ctx: Context, run_id: str | None, limit: int, target: str | None) -> list[Scaling]:
    """A power law for every program with two sizes on one machine. Raises Unavailable NO_SWEEP, NOTHING_STORED."""
    times: dict[str, dict[float, float]] = defaultdict(dict)
    for run in stored.runs(ctx, run_id, limit):
        for comparison in run.comparisons:
            size = stored.elements(comparison)
            if (
                size is None
                or comparison.verdict in BROKEN
                or target not in (None, comparison.target, comparison.identity)
            ):
                continue
            for name, figures in stored.programs(comparison):
                # Newest first: an older measurement of the same size is ignored.
                times[f"{name} on {machine(run)}"].setdefault(size, figures.time_s)
    scalings = [over_sizes(label, list(at.items())) for label, at in times.items() if len(at) >= 2]
    if not scalings:
        raise Unavailable(
            "NO_SWEEP",
            "No program is stored at two sizes on one machine.",
            f"Measure it at several sizes, or give the points of a sweep over workers: {_EXAMPLE}",
            [("aisp_hw_nccl", {}), ("aisp_analyze_scaling", {"n": [1, 2, 4], "throughput": [1.0, 1.9, 3.4]})],
        )
    return scalings


Points = Sequence[tuple[float, float]]
Law = Callable[[float], float]


class Fit(Record):
    """One law over the points. Errors are relative to the measured values."""

    law: str
    formula: str
    parameters: dict[str, float]
    rms_error: float = Field(description="Root mean square of relative residuals.")
    worst_error: float
    left_out_error: float | None = Field(
        description="Worst relative error on a point that the fit did not see; None with too few points to leave one."
    )
    at_best: float | None = Field(default=None, description="Where throughput peaks, if the law has a peak.")


def amdahl(points: Points) -> Fit:
    """Serial fraction from (workers, throughput): X(n) = X1 n / (1 + s (n - 1)). Raises ValueError below 2 points."""
    return _fitted("amdahl", "X(n) = X1 * n / (1 + s*(n - 1))", points, _amdahl, 2, _amdahl_law)


def usl(points: Points) -> Fit:
    """Universal scalability law, by Gauss-Newton on throughput. Raises ValueError below 3 points."""
    fit = _fitted("usl", "X(n) = g * n / (1 + a*(n - 1) + b*n*(n - 1))", points, _usl, 3, _usl_law)
    a, b = fit.parameters["contention"], fit.parameters["coherency"]
    best = math.sqrt((1 - a) / b) if b > 0 and a < 1 else None
    return fit.model_copy(update={"at_best": best})


def power(points: Points) -> Fit:
    """Exponent from (size, time): T(n) = c n^k, by least squares of logarithms. Raises ValueError below 2 points."""
    return _fitted("power", "T(n) = c * n^k", points, _power, 2, _power_law)


def _fitted(
    law: str,
    formula: str,
    points: Points,
    solve: Callable[[Points], dict[str, float]],
    needed: int,
    curve: Callable[[dict[str, float]], Law],
) -> Fit:
    if len({n for n, _ in points}) < needed or any(n <= 0 or y <= 0 for n, y in points):
        raise ValueError(f"{law} needs {needed} different positive points")
    parameters = solve(points)
    errors = [curve(parameters)(n) / y - 1 for n, y in points]
    unseen = []
    if len({n for n, _ in points}) > needed:
        for at, (n, y) in enumerate(points):
            rest = [point for index, point in enumerate(points) if index != at]
            if len({x for x, _ in rest}) >= needed:
                unseen.append(abs(curve(solve(rest))(n) / y - 1))
    return Fit(
        law=law,
        formula=formula,
        parameters=parameters,
        rms_error=math.sqrt(sum(e * e for e in errors) / len(errors)),
        worst_error=max(map(abs, errors)),
        left_out_error=max(unseen, default=None),
    )


def _amdahl(points: Points) -> dict[str, float]:
    """Fit n / X = (1 - s)/X1 + s n / X1, which is linear in n; weights make residuals relative."""
    c0, c1 = solve_least_squares([[1.0, n] for n, _ in points], [n / x for n, x in points], [x / n for n, x in points])
    whole = c0 + c1
    serial = min(max(c1 / whole, 0.0), 1.0) if whole > 0 else 1.0
    # With the fraction clamped to its range, the rate is fitted again on its own.
    shape = [n / (1 + serial * (n - 1)) for n, _ in points]
    rate = sum(s / x for s, (_, x) in zip(shape, points, strict=True)) / sum(
        (s / x) ** 2 for s, (_, x) in zip(shape, points, strict=True)
    )
    limit = {"max_speedup": 1 / serial} if serial > 0 else {}
    return {"serial_fraction": serial, "rate_1": rate, **limit}


def _amdahl_law(p: dict[str, float]) -> Law:
    return lambda n: p["rate_1"] * n / (1 + p["serial_fraction"] * (n - 1))


def _usl(points: Points) -> dict[str, float]:
    rows = [[1.0, n - 1, n * (n - 1)] for n, _ in points]
    c0, c1, c2 = solve_least_squares(rows, [n / x for n, x in points], [x / n for n, x in points])
    p = [1 / c0, c1 / c0, c2 / c0] if c0 > 0 else [points[0][1] / points[0][0], 0.0, 0.0]
    for _ in range(60):  # Gauss-Newton on X itself, halving steps that do not improve
        step = _usl_step(points, p)
        size, before = 1.0, _usl_loss(points, p)
        while size > 1e-6 and not _usl_loss(points, [a + size * d for a, d in zip(p, step, strict=True)]) <= before:
            size /= 2
        p = [a + size * d for a, d in zip(p, step, strict=True)]
        if all(abs(size * d) <= 1e-13 * max(abs(a), 1e-9) for a, d in zip(p, step, strict=True)):
            break
    return {"rate_1": p[0], "contention": p[1], "coherency": p[2]}


def _usl_law(p: dict[str, float]) -> Law:
    g, a, b = p["rate_1"], p["contention"], p["coherency"]
    return lambda n: g * n / (1 + a * (n - 1) + b * n * (n - 1))


def _usl_loss(points: Points, p: Sequence[float]) -> float:
    law = _usl_law(dict(zip(("rate_1", "contention", "coherency"), p, strict=True)))
    try:
        return sum((x - law(n)) ** 2 for n, x in points)
    except ZeroDivisionError:
        return math.inf


def _usl_step(points: Points, p: Sequence[float]) -> list[float]:
    g, a, b = p
    rows, rest = [], []
    for n, x in points:
        down = 1 + a * (n - 1) + b * n * (n - 1)
        rows.append([n / down, -g * n * (n - 1) / down**2, -g * n * n * (n - 1) / down**2])
        rest.append(x - g * n / down)
    return solve_least_squares(rows, rest, [1.0] * len(rest))


def _power(points: Points) -> dict[str, float]:
    rows = [[1.0, math.log(n)] for n, _ in points]
    c, k = solve_least_squares(rows, [math.log(t) for _, t in points], [1.0] * len(points))
    return {"coefficient": math.exp(c), "exponent": k}


def _power_law(p: dict[str, float]) -> Law:
    return lambda n: p["coefficient"] * n ** p["exponent"]


def solve_least_squares(rows: Sequence[Sequence[float]], y: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Weighted least squares by Householder reflections. A column without information gets zero."""
    width = len(rows[0])
    a = [[w * value for value in row] + [w * target] for row, target, w in zip(rows, y, weights, strict=True)]
    scale = [math.sqrt(sum(row[j] ** 2 for row in a)) or 1.0 for j in range(width)]
    a = [[value / scale[j] if j < width else value for j, value in enumerate(row)] for row in a]
    for j in range(min(width, len(a))):
        _reflect(a, j)
    solution = [0.0] * width
    for j in reversed(range(min(width, len(a)))):
        rest = a[j][width] - sum(a[j][k] * solution[k] for k in range(j + 1, width))
        solution[j] = rest / a[j][j] if abs(a[j][j]) > 1e-13 else 0.0
    return [value / s for value, s in zip(solution, scale, strict=True)]


def _reflect(a: list[list[float]], j: int) -> None:
    norm = math.sqrt(sum(row[j] ** 2 for row in a[j:]))
    if norm == 0.0:
        return
    v = [row[j] for row in a[j:]]
    v[0] += math.copysign(norm, v[0])
    length = sum(value * value for value in v)
    for k in range(j, len(a[0])):
        dot = sum(value * row[k] for value, row in zip(v, a[j:], strict=True))
        for value, row in zip(v, a[j:], strict=True):
            row[k] -= 2 * value * dot / length
