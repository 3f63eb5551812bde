"""Scaling laws fitted by least squares, with residuals and leave-one-out error. Pure Python: points are few."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pydantic import Field

from aisp_mcp.records import Record

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
