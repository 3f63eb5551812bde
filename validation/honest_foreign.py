"""Programs for one answer, each the baseline of two others: numpy, Python, scipy, numba, pandas, polars and torch.

SAME has programs by operation; FOREIGN pairs them up. FOREIGN_WRONG has programs that must be refused: the answer for
inputs rounded to float32, without the last element, and too large by a billionth. Programs of a package that is not
installed are left out; MISSING names these.
"""

from __future__ import annotations

import functools
import heapq
import importlib
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.spatial.distance
import scipy.special
import scipy.stats
import torch
import torch.nn.functional as F
from honest_programs import Operation, Program
from honest_unseen import arrays, drawn, lists

MISSING: list[str] = []
Inputs = Callable[[Any], dict[str, Any]]
Same = tuple[Inputs, dict[str, Program]]


def optional(name: str) -> Any:
    """The package, or None, which MISSING then names."""
    try:
        return importlib.import_module(name)
    except ImportError:
        MISSING.append(name)
        return None


numba, pd, pl = optional("numba"), optional("pandas"), optional("polars")


def compiled(function: Callable[..., Any]) -> Program | None:
    """The function of arrays, compiled by numba."""
    return arrays(numba.njit(function)) if numba else None


def columns(function: Callable[..., Any]) -> Program | None:
    """The function of series of pandas."""
    return arrays(lambda *given: np.asarray(function(*map(pd.Series, given)))) if pd else None


def frames(function: Callable[..., Any]) -> Program | None:
    """The function of series of polars."""
    return arrays(lambda *given: np.asarray(function(*map(pl.Series, given)))) if pl else None


def keyed(groups: int, size: int) -> Inputs:
    return lambda rng: {"x": rng.randn(size, dtype="float64"), "keys": rng.randint(0, groups, size)}


def integers(low: int, high: int, *shape: int) -> Inputs:
    return lambda rng: {"x": rng.randint(low, high, *shape)}


def positive(*shapes: tuple[int, ...], dtype: str = "float64") -> Inputs:
    return drawn(*shapes, dtype=dtype, positive=True)


def dominant(size: int, *more: tuple[int, ...]) -> Inputs:
    """A square matrix whose diagonal is larger than the rest of its rows."""

    def inputs(rng: Any) -> dict[str, Any]:
        x = rng.randn(size, size, dtype="float64")
        x = x + torch.diag(x.abs().sum(1) + 1.0)
        return {"x": x} | {name: rng.randn(*shape, dtype="float64") for name, shape in zip("yz", more, strict=False)}

    return inputs


def symmetric(size: int) -> Inputs:
    """A symmetric matrix with positive eigenvalues."""

    def inputs(rng: Any) -> dict[str, Any]:
        x = rng.randn(size, size, dtype="float64")
        return {"x": x @ x.T / size + torch.eye(size, dtype=torch.float64) * (1.0 + x.square().mean())}

    return inputs


# Sums, means and moments ---------------------------------------------------------------------------------------------


def looped_sum(x: Any) -> float:
    total = 0.0
    for value in x:
        total += value
    return total


def chunked_sum(xs: list[float], size: int = 128) -> float:
    return sum(sum(xs[at : at + size]) for at in range(0, len(xs), size))


def halved_sum(xs: list[float]) -> float:
    if len(xs) < 8:
        return sum(xs)
    return halved_sum(xs[: len(xs) // 2]) + halved_sum(xs[len(xs) // 2 :])


def by_key(xs: list[float], keys: list[int]) -> list[float]:
    totals = defaultdict[int, float](float)
    for x, key in zip(xs, keys, strict=True):
        totals[key] += x
    return [totals[key] for key in range(16)]


def compiled_by_key(x: Any, keys: Any) -> Any:
    out = np.zeros(16)
    for at in range(len(x)):
        out[keys[at]] += x[at]
    return out


def looped_means(x: Any) -> Any:
    out = np.zeros(x.shape[0])
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            out[row] += x[row, column]
        out[row] /= x.shape[1]
    return out


def looped_variance(x: Any) -> float:
    mean = 0.0
    for value in x:
        mean += value
    mean /= len(x)
    total = 0.0
    for value in x:
        total += (value - mean) ** 2
    return total / len(x)


def sorted_median(xs: list[float]) -> float:
    xs = sorted(xs)
    half = len(xs) // 2
    return xs[half] if len(xs) % 2 else (xs[half - 1] + xs[half]) / 2


def sorted_quantile(xs: list[float], share: float = 0.3) -> float:
    xs = sorted(xs)
    place = share * (len(xs) - 1)
    low = int(place)
    return xs[low] + (xs[low + 1] - xs[low]) * (place - low)


def weighted_loop(xs: list[float], ws: list[float]) -> float:
    return sum(x * w for x, w in zip(xs, ws, strict=True)) / sum(ws)


def listed_scores(xs: list[float]) -> list[float]:
    mean, deviation = statistics.fmean(xs), statistics.pstdev(xs)
    return [(x - mean) / deviation for x in xs]


SUMS: dict[str, Same] = {
    "total": (
        drawn((6000,)),
        {
            "numpy": arrays(np.sum),
            "chunks": lists(chunked_sum),
            "numba": compiled(looped_sum),
            "polars": frames(lambda x: x.sum()),
            "halves": lists(halved_sum),
            "pandas": columns(lambda x: x.sum()),
        },
    ),
    "total, float32": (
        drawn((6000,), dtype="float32"),
        {
            "numpy": arrays(np.sum),
            "torch": lambda x: x.sum(),
            "blocks": arrays(lambda x: x.reshape(60, 100).sum(1).sum()),
            "ones": arrays(lambda x: x @ np.ones_like(x)),
        },
    ),
    "totals of groups": (
        keyed(16, 5000),
        {
            "bincount": arrays(lambda x, keys: np.bincount(keys, x, 16)),
            "dict": lists(by_key),
            "numba": compiled(compiled_by_key),
            "one hot": arrays(lambda x, keys: (np.arange(16)[:, None] == keys) @ x),
            "pandas": columns(lambda x, keys: x.groupby(keys).sum().reindex(range(16), fill_value=0.0)),
            "add.at": arrays(lambda x, keys: (out := np.zeros(16), np.add.at(out, keys, x))[0]),
        },
    ),
    "means of rows": (
        drawn((80, 300)),
        {
            "numpy": arrays(lambda x: x.mean(1)),
            "numba": compiled(looped_means),
            "fmean": lists(lambda rows: [statistics.fmean(row) for row in rows]),
            "torch": lambda x: x.mean(1),
        },
    ),
    "variance": (
        drawn((3000,)),
        {
            "numpy": arrays(np.var),
            "numba": compiled(looped_variance),
            "statistics": lists(statistics.pvariance),
            "polars": frames(lambda x: x.var(ddof=0)),
            "pandas": columns(lambda x: x.var(ddof=0)),
            "torch": lambda x: x.var(correction=0),
        },
    ),
    "deviations of columns": (
        drawn((500, 12)),
        {
            "numpy": arrays(lambda x: x.std(0)),
            "statistics": lists(lambda rows: [statistics.pstdev(column) for column in zip(*rows, strict=True)]),
            "centred": arrays(lambda x: np.sqrt(np.square(x - x.mean(0)).mean(0))),
            "scipy": arrays(lambda x: scipy.stats.tstd(x, axis=0, ddof=0)),
        },
    ),
    "skewness": (
        drawn((2000,)),
        {
            "scipy": arrays(scipy.stats.skew),
            "by hand": arrays(lambda x: ((x - x.mean()) ** 3).mean() / ((x - x.mean()) ** 2).mean() ** 1.5),
            "standardised": arrays(lambda x: (((x - x.mean()) / x.std()) ** 3).mean()),
        },
    ),
    "kurtosis": (
        drawn((2000,)),
        {
            "scipy": arrays(lambda x: scipy.stats.kurtosis(x, fisher=False)),
            "by hand": arrays(lambda x: ((x - x.mean()) ** 4).mean() / ((x - x.mean()) ** 2).mean() ** 2),
            "standardised": arrays(lambda x: (((x - x.mean()) / x.std()) ** 4).mean()),
        },
    ),
    "median": (
        drawn((2001,)),
        {
            "numpy": arrays(np.median),
            "statistics": lists(statistics.median),
            "sorted": lists(sorted_median),
            "heap": lists(lambda xs: heapq.nsmallest(len(xs) // 2 + 1, xs)[-1]),
            "polars": frames(lambda x: x.median()),
            "torch": lambda x: x.median(),
        },
    ),
    "quantile": (
        drawn((1500,)),
        {
            "numpy": arrays(lambda x: np.quantile(x, 0.3)),
            "sorted": lists(sorted_quantile),
            "pandas": columns(lambda x: x.quantile(0.3)),
            "torch": lambda x: x.quantile(0.3),
        },
    ),
    "weighted mean": (
        positive((2500,), (2500,)),
        {
            "numpy": arrays(lambda x, y: np.average(x, weights=y)),
            "loop": lists(weighted_loop),
            "dot": arrays(lambda x, y: x @ y / y.sum()),
            "normalised": arrays(lambda x, y: (x * (y / y.sum())).sum()),
        },
    ),
    "geometric mean": (
        positive((1000,)),
        {
            "scipy": arrays(scipy.stats.gmean),
            "statistics": lists(statistics.geometric_mean),
            "logs": arrays(lambda x: np.exp(np.log(x).mean())),
            "powers": arrays(lambda x: np.prod(x ** (1 / len(x)))),
        },
    ),
    "harmonic mean": (
        positive((1000,)),
        {
            "scipy": arrays(scipy.stats.hmean),
            "statistics": lists(statistics.harmonic_mean),
            "inverses": arrays(lambda x: 1.0 / (1.0 / x).mean()),
        },
    ),
    "standard scores": (
        drawn((900,)),
        {
            "scipy": arrays(scipy.stats.zscore),
            "numpy": arrays(lambda x: (x - x.mean()) / x.std()),
            "pandas": columns(lambda x: (x - x.mean()) / x.std(ddof=0)),
            "list": lists(listed_scores),
        },
    ),
    "correlation": (
        drawn((1200,), (1200,)),
        {
            "numpy": arrays(lambda x, y: np.corrcoef(x, y)[0, 1]),
            "statistics": lists(statistics.correlation),
            "pandas": columns(lambda x, y: x.corr(y)),
            "scipy": arrays(lambda x, y: scipy.stats.pearsonr(x, y).statistic),
            "scores": arrays(lambda x, y: ((x - x.mean()) / x.std() * ((y - y.mean()) / y.std())).mean()),
        },
    ),
    "covariance": (
        drawn((400, 8)),
        {
            "numpy": arrays(lambda x: np.cov(x.T)),
            "product": arrays(lambda x: (x - x.mean(0)).T @ (x - x.mean(0)) / (len(x) - 1)),
            "pandas": arrays(lambda x: pd.DataFrame(x).cov().to_numpy()) if pd else None,
            "torch": lambda x: torch.cov(x.T),
        },
    ),
    "slope": (
        drawn((800,), (800,)),
        {
            "scipy": arrays(lambda x, y: scipy.stats.linregress(x, y).slope),
            "statistics": lists(lambda xs, ys: statistics.linear_regression(xs, ys).slope),
            "covariance": arrays(lambda x, y: np.cov(x, y)[0, 1] / x.var(ddof=1)),
            "centred": arrays(lambda x, y: (x - x.mean()) @ (y - y.mean()) / np.square(x - x.mean()).sum()),
        },
    ),
    "root mean square": (
        drawn((4000,)),
        {
            "numpy": arrays(lambda x: np.sqrt(np.mean(x**2))),
            "hypot": lists(lambda xs: math.hypot(*xs) / math.sqrt(len(xs))),
            "norm": arrays(lambda x: np.linalg.norm(x) / np.sqrt(len(x))),
            "polars": frames(lambda x: (x * x).mean() ** 0.5),
        },
    ),
    "mean absolute difference": (
        drawn((300,), (300,)),
        {
            "numpy": arrays(lambda x, y: np.abs(x - y).mean()),
            "list": lists(lambda xs, ys: statistics.fmean(abs(x - y) for x, y in zip(xs, ys, strict=True))),
            "scipy": arrays(lambda x, y: scipy.spatial.distance.cityblock(x, y) / len(x)),
            "torch": lambda x, y: F.l1_loss(x, y),
        },
    ),
}

# Series: scans, windows, filters -------------------------------------------------------------------------------------


def filtered(x: Any, share: float = 0.2) -> Any:
    out = np.empty_like(x)
    out[0] = x[0]
    for at in range(1, len(x)):
        out[at] = share * x[at] + (1.0 - share) * out[at - 1]
    return out


def biquad(x: Any) -> Any:
    out = np.zeros_like(x)
    for at in range(len(x)):
        out[at] = 0.2 * x[at]
        if at >= 1:
            out[at] += 0.3 * x[at - 1] + 0.5 * out[at - 1]
        if at >= 2:
            out[at] += 0.1 * x[at - 2] - 0.2 * out[at - 2]
    return out


def windows(x: Any, width: int = 20) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, width)


def looped_windows(x: Any) -> Any:
    out = np.zeros(len(x) - 19)
    for at in range(len(out)):
        for step in range(20):
            out[at] += x[at + step]
        out[at] /= 20
    return out


def looped_filter(x: Any, y: Any) -> Any:
    out = np.zeros(len(x) - len(y) + 1)
    for at in range(len(out)):
        for step in range(len(y)):
            out[at] += x[at + step] * y[len(y) - 1 - step]
    return out


def largest_of_windows(xs: list[float], width: int = 20) -> list[float]:
    return [max(xs[at : at + width]) for at in range(len(xs) - width + 1)]


def drawdown(xs: list[float]) -> float:
    high = worst = 0.0
    for x in itertools.accumulate(xs):
        high = max(high, x)
        worst = max(worst, high - x)
    return worst


def interpolated(x: Any, y: Any, at: Any) -> Any:
    order = np.argsort(x)
    x, y = x[order], y[order]
    place = np.clip(np.searchsorted(x, at) - 1, 0, len(x) - 2)
    slope = (y[place + 1] - y[place]) / (x[place + 1] - x[place])
    return np.where(at <= x[0], y[0], np.where(at >= x[-1], y[-1], y[place] + slope * (at - x[place])))


GRID = np.linspace(-2.0, 2.0, 101)
TAPS = np.exp(-0.5 * (np.arange(-8, 9) / 2.0) ** 2)
TAPS /= TAPS.sum()

SERIES: dict[str, Same] = {
    "running total": (
        drawn((3000,)),
        {
            "numpy": arrays(np.cumsum),
            "accumulate": lists(lambda xs: list(itertools.accumulate(xs))),
            "pandas": columns(lambda x: x.cumsum()),
            "polars": frames(lambda x: x.cum_sum()),
            "torch": lambda x: x.cumsum(0),
        },
    ),
    "running product": (
        lambda rng: {"x": 1.0 + 0.02 * (rng.rand(600, dtype="float64") - 0.5)},
        {
            "numpy": arrays(np.cumprod),
            "accumulate": lists(lambda xs: list(itertools.accumulate(xs, lambda a, b: a * b))),
            "pandas": columns(lambda x: x.cumprod()),
            "logs": arrays(lambda x: np.exp(np.cumsum(np.log(x)))),
        },
    ),
    "running maximum": (
        drawn((2000,)),
        {
            "numpy": arrays(np.maximum.accumulate),
            "accumulate": lists(lambda xs: list(itertools.accumulate(xs, max))),
            "polars": frames(lambda x: x.cum_max()),
            "torch": lambda x: x.cummax(0).values,
        },
    ),
    "differences": (
        drawn((2000,)),
        {
            "numpy": arrays(np.diff),
            "slices": arrays(lambda x: x[1:] - x[:-1]),
            "pairwise": lists(lambda xs: [b - a for a, b in itertools.pairwise(xs)]),
            "pandas": columns(lambda x: x.diff()[1:]),
        },
    ),
    "moving mean": (
        drawn((1500,)),
        {
            "windows": arrays(lambda x: windows(x).mean(1)),
            "convolution": arrays(lambda x: np.convolve(x, np.full(20, 0.05), "valid")),
            "numba": compiled(looped_windows),
            "scipy": arrays(lambda x: scipy.ndimage.correlate1d(x, np.full(20, 0.05), origin=0)[10:-9]),
            "torch": lambda x: F.avg_pool1d(x[None], 20, 1)[0],
        },
    ),
    "moving maximum": (
        drawn((1500,)),
        {
            "windows": arrays(lambda x: windows(x).max(1)),
            "list": lists(largest_of_windows),
            "scipy": arrays(lambda x: scipy.ndimage.maximum_filter1d(x, 20)[10:-9]),
            "pandas": columns(lambda x: x.rolling(20).max()[19:]),
        },
    ),
    "exponential smoothing": (
        drawn((1500,)),
        {
            "numba": compiled(filtered),
            "loop": arrays(filtered),
            "pandas": columns(lambda x: x.ewm(alpha=0.2, adjust=False).mean()),
            "polars": frames(lambda x: x.ewm_mean(alpha=0.2, adjust=False)),
            "scipy": arrays(lambda x: scipy.signal.lfilter([0.2], [1.0, -0.8], x, zi=[0.8 * x[0]])[0]),
        },
    ),
    "biquad": (
        drawn((1000,)),
        {
            "loop": arrays(biquad),
            "scipy": arrays(lambda x: scipy.signal.lfilter([0.2, 0.3, 0.1], [1.0, -0.5, 0.2], x)),
            "numba": compiled(biquad),
            "sections": arrays(lambda x: scipy.signal.sosfilt([[0.2, 0.3, 0.1, 1.0, -0.5, 0.2]], x)),
        },
    ),
    "filter": (
        drawn((900,), (25,)),
        {
            "numpy": arrays(lambda x, y: np.convolve(x, y, "valid")),
            "numba": compiled(looped_filter),
            "scipy": arrays(lambda x, y: scipy.signal.convolve(x, y, "valid", "direct")),
            "windows": arrays(lambda x, y: windows(x, 25) @ y[::-1]),
            "torch": lambda x, y: F.conv1d(x[None, None], y.flip(0)[None, None])[0, 0],
        },
    ),
    "gaussian blur": (
        drawn((800,)),
        {
            "scipy": arrays(lambda x: scipy.ndimage.gaussian_filter1d(x, 2.0, truncate=4.0, mode="constant")),
            "numpy": arrays(lambda x: np.convolve(x, TAPS, "same")),
            "correlate": arrays(lambda x: scipy.ndimage.correlate1d(x, TAPS, mode="constant")),
        },
    ),
    "autocorrelation": (
        drawn((600,)),
        {
            "numpy": arrays(lambda x: np.correlate(x, x, "full")[len(x) - 1 :][:50]),
            "slices": arrays(lambda x: np.array([x[lag:] @ x[: len(x) - lag] for lag in range(50)])),
            "scipy": arrays(lambda x: scipy.signal.correlate(x, x, method="direct")[len(x) - 1 :][:50]),
        },
    ),
    "worst loss": (
        drawn((1500,)),
        {
            "loop": lists(drawdown),
            "numpy": arrays(
                lambda x: max(0.0, np.max(np.maximum(np.maximum.accumulate(np.cumsum(x)), 0.0) - np.cumsum(x)))
            ),
            "pandas": columns(lambda x: (x.cumsum().cummax().clip(lower=0.0) - x.cumsum()).clip(lower=0.0).max()),
        },
    ),
    "interpolation": (
        lambda rng: {
            "x": (2.0 * rng.rand(200, dtype="float64") - 1.0).sort().values,
            "y": rng.randn(200, dtype="float64"),
        },
        {
            "numpy": arrays(lambda x, y: np.interp(GRID, x, y)),
            "search": arrays(lambda x, y: interpolated(x, y, GRID)),
        },
    ),
    "trapezoids": (
        drawn((1500,)),
        {
            "numpy": arrays(np.trapezoid),
            "scipy": arrays(scipy.integrate.trapezoid),
            "pairs": lists(lambda xs: sum((a + b) / 2 for a, b in itertools.pairwise(xs))),
        },
    ),
    "Simpson's rule": (
        drawn((1501,)),
        {
            "scipy": arrays(scipy.integrate.simpson),
            "slices": arrays(lambda x: (x[0] + 4 * x[1::2].sum() + 2 * x[2:-1:2].sum() + x[-1]) / 3),
            "panels": arrays(lambda x: ((x[:-2:2] + 4 * x[1::2] + x[2::2]) / 3).sum()),
        },
    ),
    "running trapezoids": (
        drawn((1200,)),
        {
            "scipy": arrays(scipy.integrate.cumulative_trapezoid),
            "numpy": arrays(lambda x: np.cumsum((x[1:] + x[:-1]) / 2)),
            "accumulate": lists(lambda xs: list(itertools.accumulate((a + b) / 2 for a, b in itertools.pairwise(xs)))),
        },
    ),
}

# Linear algebra and transforms ---------------------------------------------------------------------------------------


def looped_product(x: Any, y: Any) -> Any:
    out = np.zeros((x.shape[0], y.shape[1]), x.dtype)
    for row in range(x.shape[0]):
        for inner in range(x.shape[1]):
            for column in range(y.shape[1]):
                out[row, column] += x[row, inner] * y[inner, column]
    return out


def list_product(x: list[list[float]], y: list[list[float]]) -> list[list[float]]:
    turned = list(zip(*y, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in turned] for row in x]


def tiled_product(x: Any, y: Any) -> Any:
    return sum(x[:, at : at + 16] @ y[at : at + 16] for at in range(0, x.shape[1], 16))


def looped_cholesky(x: Any) -> Any:
    out = np.zeros_like(x)
    for row in range(len(x)):
        for column in range(row + 1):
            rest = x[row, column]
            for inner in range(column):
                rest -= out[row, inner] * out[column, inner]
            out[row, column] = math.sqrt(rest) if row == column else rest / out[column, column]
    return out


def looped_substitution(x: Any, y: Any) -> Any:
    out = np.zeros(len(y))
    for row in range(len(y)):
        rest = y[row]
        for column in range(row):
            rest -= x[row, column] * out[column]
        out[row] = rest / x[row, row]
    return out


def looped_elimination(x: Any, y: Any) -> Any:
    x, y = x.copy(), y.copy()
    for column in range(len(y)):
        for row in range(column + 1, len(y)):
            factor = x[row, column] / x[column, column]
            for at in range(column, len(y)):
                x[row, at] -= factor * x[column, at]
            y[row] -= factor * y[column]
    for row in range(len(y) - 1, -1, -1):
        for column in range(row + 1, len(y)):
            y[row] -= x[row, column] * y[column]
        y[row] /= x[row, row]
    return y


def fourier(size: int) -> Any:
    return np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size)


def cosines(size: int) -> Any:
    return 2 * np.cos(np.pi * np.outer(np.arange(size), np.arange(size) + 0.5) / size)


def parts(x: Any) -> Any:
    return np.stack([x.real, x.imag])


LINEAR: dict[str, Same] = {
    "matrix product": (
        drawn((40, 96), (96, 30)),
        {
            "numpy": arrays(np.matmul),
            "numba": compiled(looped_product),
            "lists": arrays(lambda x, y: np.array(list_product(x.tolist(), y.tolist()))),
            "scipy": arrays(lambda x, y: scipy.linalg.blas.dgemm(1.0, x, y)),
            "einsum": arrays(lambda x, y: np.einsum("ij,jk->ik", x, y)),
            "tiles": arrays(tiled_product),
        },
    ),
    "matrix product, float32": (
        drawn((40, 96), (96, 30), dtype="float32"),
        {
            "numpy": arrays(np.matmul),
            "numba": compiled(looped_product),
            "torch": lambda x, y: x @ y,
            "tiles": arrays(tiled_product),
        },
    ),
    "matrix vector product": (
        drawn((120, 90), (90,)),
        {
            "numpy": arrays(np.matmul),
            "sums": arrays(lambda x, y: (x * y).sum(1)),
            "lists": lists(lambda x, y: [sum(a * b for a, b in zip(row, y, strict=True)) for row in x]),
            "torch": lambda x, y: torch.mv(x, y),
        },
    ),
    "quadratic form": (
        drawn((60, 60), (60,)),
        {
            "numpy": arrays(lambda x, y: y @ x @ y),
            "einsum": arrays(lambda x, y: np.einsum("i,ij,j", y, x, y)),
            "outer": arrays(lambda x, y: (np.outer(y, y) * x).sum()),
        },
    ),
    "solution": (
        dominant(40, (40,)),
        {
            "numpy": arrays(np.linalg.solve),
            "scipy": arrays(scipy.linalg.solve),
            "factors": arrays(lambda x, y: scipy.linalg.lu_solve(scipy.linalg.lu_factor(x), y)),
            "numba": compiled(looped_elimination),
            "inverse": arrays(lambda x, y: np.linalg.inv(x) @ y),
            "torch": lambda x, y: torch.linalg.solve(x, y),
        },
    ),
    "inverse": (
        dominant(30),
        {
            "numpy": arrays(np.linalg.inv),
            "scipy": arrays(scipy.linalg.inv),
            "solve": arrays(lambda x: np.linalg.solve(x, np.eye(len(x)))),
        },
    ),
    "least squares": (
        drawn((200, 6), (200,)),
        {
            "numpy": arrays(lambda x, y: np.linalg.lstsq(x, y)[0]),
            "scipy": arrays(lambda x, y: scipy.linalg.lstsq(x, y)[0]),
            "qr": arrays(lambda x, y: (lambda q, r: np.linalg.solve(r, q.T @ y))(*np.linalg.qr(x))),
            "pinv": arrays(lambda x, y: np.linalg.pinv(x) @ y),
        },
    ),
    "ridge": (
        drawn((200, 6), (200,)),
        {
            "solve": arrays(lambda x, y: np.linalg.solve(x.T @ x + len(x) * np.eye(6), x.T @ y)),
            "cholesky": arrays(
                lambda x, y: scipy.linalg.cho_solve(scipy.linalg.cho_factor(x.T @ x + len(x) * np.eye(6)), x.T @ y)
            ),
            "inverse": arrays(lambda x, y: np.linalg.inv(x.T @ x + len(x) * np.eye(6)) @ x.T @ y),
        },
    ),
    "Cholesky factor": (
        symmetric(24),
        {
            "numpy": arrays(np.linalg.cholesky),
            "scipy": arrays(lambda x: scipy.linalg.cholesky(x, lower=True)),
            "numba": compiled(looped_cholesky),
            "loop": arrays(looped_cholesky),
            "torch": lambda x: torch.linalg.cholesky(x),
        },
    ),
    "log determinant": (
        symmetric(24),
        {
            "numpy": arrays(lambda x: np.linalg.slogdet(x)[1]),
            "cholesky": arrays(lambda x: 2 * np.log(np.diag(np.linalg.cholesky(x))).sum()),
            "eigenvalues": arrays(lambda x: np.log(np.linalg.eigvalsh(x)).sum()),
            "torch": lambda x: torch.logdet(x),
        },
    ),
    "eigenvalues": (
        symmetric(20),
        {
            "numpy": arrays(np.linalg.eigvalsh),
            "scipy": arrays(lambda x: scipy.linalg.eigh(x, eigvals_only=True)),
            "singular": arrays(lambda x: np.linalg.svd(x, compute_uv=False)[::-1].copy()),
            "torch": lambda x: torch.linalg.eigvalsh(x),
        },
    ),
    "substitution": (
        dominant(40, (40,)),
        {
            "scipy": arrays(lambda x, y: scipy.linalg.solve_triangular(x, y, lower=True)),
            "numba": compiled(looped_substitution),
            "numpy": arrays(lambda x, y: np.linalg.solve(np.tril(x), y)),
        },
    ),
    "trace of a product": (
        drawn((50, 70), (70, 50)),
        {
            "numpy": arrays(lambda x, y: np.trace(x @ y)),
            "einsum": arrays(lambda x, y: np.einsum("ij,ji", x, y)),
            "sum": arrays(lambda x, y: (x * y.T).sum()),
        },
    ),
    "Gram matrix": (
        drawn((300, 10)),
        {
            "numpy": arrays(lambda x: x.T @ x),
            "outer": arrays(lambda x: sum(np.outer(row, row) for row in x)),
            "scipy": arrays(lambda x: (lambda g: np.triu(g) + np.triu(g, 1).T)(scipy.linalg.blas.dsyrk(1.0, x.T))),
        },
    ),
    "Fourier transform": (
        drawn((256,)),
        {
            "numpy": arrays(lambda x: parts(np.fft.fft(x))),
            "scipy": arrays(lambda x: parts(scipy.fft.fft(x))),
            "product": arrays(lambda x: parts(fourier(len(x)) @ x)),
            "halves": arrays(lambda x: parts(halves_of_fourier(x))),
        },
    ),
    "cosine transform": (
        drawn((128,)),
        {
            "scipy": arrays(scipy.fft.dct),
            "product": arrays(lambda x: cosines(len(x)) @ x),
        },
    ),
    "polynomial": (
        drawn((2000,)),
        {
            "numpy": arrays(lambda x: np.polyval([0.3, -1.0, 0.5, 2.0], x)),
            "new numpy": arrays(lambda x: np.polynomial.polynomial.polyval(x, [2.0, 0.5, -1.0, 0.3])),
            "powers": arrays(lambda x: 0.3 * x**3 - x**2 + 0.5 * x + 2.0),
            "list": lists(lambda xs: [((0.3 * x - 1.0) * x + 0.5) * x + 2.0 for x in xs]),
        },
    ),
}


def halves_of_fourier(x: Any) -> Any:
    if len(x) == 1:
        return x.astype(complex)
    even, odd = halves_of_fourier(x[::2]), halves_of_fourier(x[1::2])
    turned = np.exp(-2j * np.pi * np.arange(len(odd)) / len(x)) * odd
    return np.concatenate([even + turned, even - turned])


# Special functions, probabilities, geometry --------------------------------------------------------------------------


def listed(function: Callable[[float], float]) -> Program:
    return lists(lambda xs: [function(x) for x in xs])


def looped_distances(x: Any, y: Any) -> Any:
    out = np.zeros((len(x), len(y)))
    for row in range(len(x)):
        for other in range(len(y)):
            for at in range(x.shape[1]):
                out[row, other] += (x[row, at] - y[other, at]) ** 2
            out[row, other] = math.sqrt(out[row, other])
    return out


def shoelace(xs: list[float], ys: list[float]) -> float:
    around = zip(xs, ys, xs[1:] + xs[:1], ys[1:] + ys[:1], strict=True)
    return sum(x * v - u * y for x, y, u, v in around) / 2


def looped_haversine(x: Any, y: Any) -> Any:
    out = np.zeros(len(x))
    for at in range(len(x)):
        a = math.sin((y[at, 0] - x[at, 0]) / 2) ** 2
        a += math.cos(x[at, 0]) * math.cos(y[at, 0]) * math.sin((y[at, 1] - x[at, 1]) / 2) ** 2
        out[at] = 2 * math.asin(math.sqrt(a))
    return out


def haversine(x: Any, y: Any) -> Any:
    (p, q), (r, s) = x.T, y.T
    return 2 * np.arcsin(np.sqrt(np.sin((r - p) / 2) ** 2 + np.cos(p) * np.cos(r) * np.sin((s - q) / 2) ** 2))


def looped_cross(x: Any, y: Any) -> Any:
    out = np.zeros_like(x)
    for at in range(len(x)):
        out[at, 0] = x[at, 1] * y[at, 2] - x[at, 2] * y[at, 1]
        out[at, 1] = x[at, 2] * y[at, 0] - x[at, 0] * y[at, 2]
        out[at, 2] = x[at, 0] * y[at, 1] - x[at, 1] * y[at, 0]
    return out


def looped_laplacian(x: Any) -> Any:
    out = np.zeros((x.shape[0] - 2, x.shape[1] - 2))
    for row in range(1, x.shape[0] - 1):
        for column in range(1, x.shape[1] - 1):
            out[row - 1, column - 1] = (
                x[row - 1, column] + x[row + 1, column] + x[row, column - 1] + x[row, column + 1] - 4 * x[row, column]
            )
    return out


def looped_integral(x: Any) -> Any:
    out = np.zeros_like(x)
    for row in range(x.shape[0]):
        line = 0.0
        for column in range(x.shape[1]):
            line += x[row, column]
            out[row, column] = line + (out[row - 1, column] if row else 0.0)
    return out


def looped_potential(x: Any) -> float:
    total = 0.0
    for one in range(len(x)):
        for other in range(one):
            total += 1.0 / math.sqrt(1.0 + ((x[one] - x[other]) ** 2).sum())
    return total


def rotate(x: Any, angle: float = 0.7) -> Any:
    cos, sin = math.cos(angle), math.sin(angle)
    return np.stack([cos * x[:, 0] - sin * x[:, 1], sin * x[:, 0] + cos * x[:, 1]], 1)


POINTS: dict[str, Same] = {
    "logistic function": (
        drawn((1500,)),
        {
            "scipy": arrays(scipy.special.expit),
            "numpy": arrays(lambda x: 1.0 / (1.0 + np.exp(-x))),
            "torch": lambda x: torch.sigmoid(x),
        },
    ),
    "error function": (
        drawn((1500,)),
        {
            "scipy": arrays(scipy.special.erf),
            "math": listed(math.erf),
            "torch": lambda x: torch.erf(x),
        },
    ),
    "gelu": (
        drawn((1500,)),
        {
            "scipy": arrays(lambda x: x * scipy.special.ndtr(x)),
            "complement": listed(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))),
        },
    ),
    "softplus": (
        drawn((1500,)),
        {
            "logaddexp": arrays(lambda x: np.logaddexp(0.0, x)),
            "log1p": arrays(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
            "math": listed(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x)))),
        },
    ),
    "tanh": (
        drawn((1500,)),
        {
            "numpy": arrays(np.tanh),
            "math": listed(math.tanh),
            "expm1": arrays(lambda x: np.sign(x) * -np.expm1(-2 * np.abs(x)) / (2 + np.expm1(-2 * np.abs(x)))),
        },
    ),
    "log of sums": (
        drawn((40, 60)),
        {
            "scipy": arrays(lambda x: scipy.special.logsumexp(x, 1)),
            "shifted": arrays(lambda x: np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1)),
            "reduced": arrays(lambda x: np.logaddexp.reduce(x, 1)),
            "torch": lambda x: x.logsumexp(1),
        },
    ),
    "softmax": (
        drawn((40, 60)),
        {
            "scipy": arrays(lambda x: scipy.special.softmax(x, 1)),
            "torch": lambda x: x.softmax(1),
            "logs": arrays(lambda x: np.exp(x - scipy.special.logsumexp(x, 1, keepdims=True))),
        },
    ),
    "entropy": (
        positive((700,)),
        {
            "scipy": arrays(scipy.stats.entropy),
            "entr": arrays(lambda x: scipy.special.entr(x / x.sum()).sum()),
            "list": lists(lambda xs: -sum(x / total * math.log(x / total) for total in [sum(xs)] for x in xs)),
        },
    ),
    "divergence": (
        positive((700,), (700,)),
        {
            "scipy": arrays(lambda x, y: scipy.special.rel_entr(x / x.sum(), y / y.sum()).sum()),
            "numpy": arrays(lambda x, y: (x / x.sum() * np.log(x / x.sum() / (y / y.sum()))).sum()),
            "torch": lambda x, y: F.kl_div((y / y.sum()).log(), x / x.sum(), reduction="sum"),
        },
    ),
    "log of the gamma function": (
        positive((800,)),
        {
            "scipy": arrays(scipy.special.gammaln),
            "math": listed(math.lgamma),
        },
    ),
    "normal density": (
        drawn((800,)),
        {
            "scipy": arrays(scipy.stats.norm.pdf),
            "numpy": arrays(lambda x: np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)),
            "statistics": listed(statistics.NormalDist().pdf),
        },
    ),
    "normal distribution": (
        drawn((800,)),
        {
            "scipy": arrays(scipy.stats.norm.cdf),
            "ndtr": arrays(scipy.special.ndtr),
            "erfc": listed(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))),
        },
    ),
    "distances": (
        drawn((30, 9), (25, 9)),
        {
            "scipy": arrays(scipy.spatial.distance.cdist),
            "numba": compiled(looped_distances),
            "broadcast": arrays(lambda x, y: np.sqrt(np.square(x[:, None] - y).sum(2))),
            "math": arrays(lambda x, y: np.array([[math.dist(a, b) for b in y] for a in x])),
            "torch": lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"),
        },
    ),
    "city block distances": (
        drawn((30, 9), (25, 9)),
        {
            "scipy": arrays(lambda x, y: scipy.spatial.distance.cdist(x, y, "cityblock")),
            "broadcast": arrays(lambda x, y: np.abs(x[:, None] - y).sum(2)),
            "torch": lambda x, y: torch.cdist(x, y, p=1.0),
        },
    ),
    "cosines of angles": (
        drawn((30, 20), (25, 20)),
        {
            "norms first": arrays(
                lambda x, y: (
                    x / np.linalg.norm(x, axis=1, keepdims=True) @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
                )
            ),
            "norms last": arrays(lambda x, y: x @ y.T / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))),
            "rows": arrays(lambda x, y: np.array([[a @ b / np.sqrt(a @ a * (b @ b)) for b in y] for a in x])),
        },
    ),
    "area": (
        drawn((300,), (300,)),
        {
            "list": lists(shoelace),
            "roll": arrays(lambda x, y: (x @ np.roll(y, -1) - np.roll(x, -1) @ y) / 2),
            "difference": arrays(lambda x, y: (x * (np.roll(y, -1) - np.roll(y, 1))).sum() / 2),
        },
    ),
    "distances on a sphere": (
        lambda rng: {name: 2.8 * rng.rand(400, 2, dtype="float64") - 1.4 for name in "xy"},
        {
            "numpy": arrays(haversine),
            "numba": compiled(looped_haversine),
            "loop": arrays(looped_haversine),
        },
    ),
    "cross product": (
        drawn((300, 3), (300, 3)),
        {
            "numpy": arrays(np.cross),
            "numba": compiled(looped_cross),
            "torch": lambda x, y: torch.linalg.cross(x, y),
        },
    ),
    "rotation": (
        drawn((500, 2)),
        {
            "parts": arrays(rotate),
            "product": arrays(
                lambda x: x @ np.array([[math.cos(0.7), math.sin(0.7)], [-math.sin(0.7), math.cos(0.7)]])
            ),
            "complex": arrays(lambda x: ((x[:, 0] + 1j * x[:, 1]) * np.exp(0.7j)).view(float).reshape(-1, 2)),
        },
    ),
    "potential": (
        drawn((60, 3)),
        {
            "loop": arrays(looped_potential),
            "scipy": arrays(lambda x: (1 / np.sqrt(1 + scipy.spatial.distance.pdist(x, "sqeuclidean"))).sum()),
            "broadcast": arrays(lambda x: np.triu(1 / np.sqrt(1 + np.square(x[:, None] - x).sum(2)), 1).sum()),
        },
    ),
    "Laplacian": (
        drawn((40, 50)),
        {
            "slices": arrays(lambda x: x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1]),
            "scipy": arrays(lambda x: scipy.ndimage.laplace(x)[1:-1, 1:-1]),
            "numba": compiled(looped_laplacian),
            "convolution": arrays(lambda x: scipy.signal.convolve2d(x, [[0, 1, 0], [1, -4, 1], [0, 1, 0]], "valid")),
        },
    ),
    "integral image": (
        drawn((40, 50)),
        {
            "numpy": arrays(lambda x: x.cumsum(0).cumsum(1)),
            "numba": compiled(looped_integral),
            "columns last": arrays(lambda x: x.cumsum(1).cumsum(0)),
        },
    ),
    "norms": (
        drawn((200, 30)),
        {
            "numpy": arrays(lambda x: np.linalg.norm(x, axis=1)),
            "einsum": arrays(lambda x: np.sqrt(np.einsum("ij,ij->i", x, x))),
            "math": lists(lambda x: [math.hypot(*row) for row in x]),
            "torch": lambda x: torch.linalg.vector_norm(x, dim=1),
        },
    ),
    "compound interest": (
        positive((400,)),
        {
            "powers": arrays(lambda x: 100.0 * (1.0 + x / 100.0) ** 12),
            "logs": arrays(lambda x: 100.0 * np.exp(12 * np.log1p(x / 100.0))),
            "loop": listed(lambda x: functools.reduce(lambda sum_, _: sum_ * (1.0 + x / 100.0), range(12), 100.0)),
        },
    ),
}

# Exact answers: orders, counts, paths --------------------------------------------------------------------------------


def edit_distance(xs: list[int], ys: list[int]) -> int:
    row = list(range(len(ys) + 1))
    for one, x in enumerate(xs, 1):
        last, row[0] = row[0], one
        for other, y in enumerate(ys, 1):
            last, row[other] = row[other], min(row[other] + 1, row[other - 1] + 1, last + (x != y))
    return row[-1]


def edit_table(x: Any, y: Any) -> int:
    table = np.zeros((len(x) + 1, len(y) + 1), np.int64)
    table[:, 0], table[0] = np.arange(len(x) + 1), np.arange(len(y) + 1)
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            cost = table[i - 1, j - 1] + (x[i - 1] != y[j - 1])
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, cost)
    return table[-1, -1]


def longest_rise(xs: list[int]) -> int:
    best: list[int] = []
    for at, x in enumerate(xs):
        best.append(1 + max((best[before] for before in range(at) if xs[before] < x), default=0))
    return max(best)


def longest_rise_by_search(xs: list[int]) -> int:
    import bisect

    ends: list[int] = []
    for x in xs:
        place = bisect.bisect_left(ends, x)
        ends[place : place + 1] = [x]
    return len(ends)


def shortest_paths(x: Any) -> Any:
    out = x.copy()
    np.fill_diagonal(out, 0.0)
    for middle in range(len(x)):
        for one in range(len(x)):
            for other in range(len(x)):
                out[one, other] = min(out[one, other], out[one, middle] + out[middle, other])
    return out


def shortest_paths_by_rows(x: Any) -> Any:
    out = x.copy()
    np.fill_diagonal(out, 0.0)
    for middle in range(len(x)):
        out = np.minimum(out, out[:, middle, None] + out[middle])
    return out


def pairs_of(integers_: list[int]) -> int:
    return sum(count * (count - 1) // 2 for count in Counter(integers_).values())


EXACT: dict[str, Same] = {
    "sorted": (
        drawn((2000,)),
        {
            "numpy": arrays(np.sort),
            "list": lists(sorted),
            "heap": lists(lambda xs: heapq.nsmallest(len(xs), xs)),
            "polars": frames(lambda x: x.sort()),
            "torch": lambda x: x.sort().values,
        },
    ),
    "largest ten": (
        drawn((2000,)),
        {
            "sort": arrays(lambda x: np.sort(x)[::-1][:10].copy()),
            "heap": lists(lambda xs: heapq.nlargest(10, xs)),
            "partition": arrays(lambda x: np.sort(np.partition(x, len(x) - 10)[-10:])[::-1].copy()),
            "pandas": columns(lambda x: x.nlargest(10)),
            "torch": lambda x: x.topk(10).values,
        },
    ),
    "ranks": (
        drawn((500,)),
        {
            "scipy": arrays(scipy.stats.rankdata),
            "pandas": columns(lambda x: x.rank()),
            "counts": arrays(lambda x: (x[:, None] > x).sum(1) + ((x[:, None] == x).sum(1) + 1) / 2),
        },
    ),
    "histogram of integers": (
        integers(0, 32, 4000),
        {
            "bincount": arrays(lambda x: np.bincount(x, minlength=32)),
            "counter": arrays(lambda x: np.array([Counter(x.tolist())[value] for value in range(32)])),
            "comparison": arrays(lambda x: (x[:, None] == np.arange(32)).sum(0)),
            "torch": lambda x: torch.bincount(x, minlength=32),
        },
    ),
    "equal pairs": (
        integers(0, 200, 600),
        {
            "counter": lists(pairs_of),
            "numpy": arrays(lambda x: np.triu(x[:, None] == x, 1).sum()),
            "sorted": lists(lambda xs: sum(math.comb(len(list(same)), 2) for _, same in itertools.groupby(sorted(xs)))),
        },
    ),
    "edit distance": (
        lambda rng: {"x": rng.randint(0, 4, 50), "y": rng.randint(0, 4, 60)},
        {
            "row": lists(edit_distance),
            "table": arrays(edit_table),
            "numba": compiled(edit_table),
        },
    ),
    "longest rise": (
        integers(0, 1000, 150),
        {"table": lists(longest_rise), "search": lists(longest_rise_by_search)},
    ),
    "shortest paths": (
        positive((16, 16)),
        {
            "loop": arrays(shortest_paths),
            "rows": arrays(shortest_paths_by_rows),
            "numba": compiled(shortest_paths),
        },
    ),
    "largest of rows": (
        drawn((100, 40)),
        {
            "numpy": arrays(lambda x: x.max(1)),
            "list": lists(lambda x: [max(row) for row in x]),
            "torch": lambda x: x.amax(1),
        },
    ),
    "clipped": (
        drawn((1000,)),
        {
            "numpy": arrays(lambda x: np.clip(x, -0.5, 1.5)),
            "minimum": arrays(lambda x: np.minimum(np.maximum(x, -0.5), 1.5)),
            "list": lists(lambda xs: [min(max(x, -0.5), 1.5) for x in xs]),
            "polars": frames(lambda x: x.clip(-0.5, 1.5)),
        },
    ),
}

# Layers in float32 and bfloat16 --------------------------------------------------------------------------------------


def widened(function: Callable[..., Any]) -> Program:
    """The function in float64, rounded once at the end."""
    return lambda *given: function(*(tensor.double() for tensor in given)).to(given[0].dtype)


def rms(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def streamed(q: Any, k: Any, v: Any) -> Any:
    """Attention over eight keys at a time, with running sums."""
    high = torch.full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(high), torch.zeros(*q.shape[:-1], v.shape[-1])
    for at in range(0, k.shape[-2], 8):
        scores = q @ k[..., at : at + 8, :].transpose(-1, -2) / math.sqrt(q.shape[-1])
        new = torch.maximum(high, scores.amax(-1, keepdim=True))
        weights, shrink = torch.exp(scores - new), torch.exp(high - new)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out, high = out * shrink + weights @ v[..., at : at + 8, :], new
    return out / total


def three(*shape: int, dtype: str = "float32") -> Inputs:
    return lambda rng: {name: rng.randn(*shape, dtype=dtype) for name in "qkv"}


def normed(x: Any) -> Any:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)


LAYERS: dict[str, Same] = {
    "attention, float32": (
        three(4, 32, 24),
        {
            "torch": F.scaled_dot_product_attention,
            "product": attention,
            "streamed": streamed,
            "double": widened(attention),
        },
    ),
    "attention, bfloat16": (
        three(4, 32, 24, dtype="bfloat16"),
        {
            "torch": F.scaled_dot_product_attention,
            "double": widened(attention),
        },
    ),
    "layer norm, float32": (
        drawn((40, 96), dtype="float32"),
        {
            "torch": lambda x: F.layer_norm(x, x.shape[-1:]),
            "by hand": normed,
            "double": widened(normed),
        },
    ),
    "layer norm, bfloat16": (
        drawn((40, 96), dtype="bfloat16"),
        {
            "torch": lambda x: F.layer_norm(x, x.shape[-1:]),
            "wide": lambda x: normed(x.float()).bfloat16(),
            "double": widened(normed),
        },
    ),
    "rms norm, float32": (
        drawn((40, 96), dtype="float32"),
        {
            "torch": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
            "by hand": rms,
            "double": widened(rms),
        },
    ),
    "rms norm, bfloat16": (
        drawn((40, 96), dtype="bfloat16"),
        {
            "wide": lambda x: rms(x.float()).bfloat16(),
            "double": widened(rms),
            "torch": lambda x: F.rms_norm(x.float(), x.shape[-1:], eps=1e-6).bfloat16(),
        },
    ),
    "linear layer, bfloat16": (
        drawn((24, 64), (48, 64), dtype="bfloat16"),
        {
            "torch": F.linear,
            "product": lambda x, y: x @ y.T,
            "wide": lambda x, y: (x.float() @ y.float().T).bfloat16(),
            "double": widened(F.linear),
        },
    ),
    "softmax, bfloat16": (
        drawn((24, 80), dtype="bfloat16"),
        {
            "torch": lambda x: x.softmax(-1),
            "wide": lambda x: x.float().softmax(-1).bfloat16(),
            "double": widened(lambda x: x.softmax(-1)),
        },
    ),
    "gelu, bfloat16": (
        drawn((24, 80), dtype="bfloat16"),
        {
            "torch": F.gelu,
            "wide": lambda x: (0.5 * x.float() * torch.erfc(-x.float() / math.sqrt(2))).bfloat16(),
            "double": widened(F.gelu),
        },
    ),
    "convolution, float32": (
        drawn((2, 3, 16, 16), (5, 3, 3, 3), dtype="float32"),
        {
            "torch": F.conv2d,
            "unfold": lambda x, y: (y.flatten(1) @ F.unfold(x, 3)).view(2, 5, 14, 14),
            "shifts": lambda x, y: sum(
                torch.einsum("bchw,oc->bohw", x[:, :, a : a + 14, b : b + 14], y[:, :, a, b])
                for a in range(3)
                for b in range(3)
            ),
            "double": widened(F.conv2d),
        },
    ),
    "cross entropy, float32": (
        lambda rng: {"x": rng.randn(48, 30), "y": rng.randint(0, 30, 48)},
        {
            "torch": F.cross_entropy,
            "gather": lambda x, y: (x.logsumexp(1) - x.gather(1, y[:, None])[:, 0]).mean(),
            "numpy": arrays(
                lambda x, y: (scipy.special.logsumexp(x, 1) - x[np.arange(len(x)), y]).mean(dtype=np.float32)
            ),
        },
    ),
    "mean squared error, bfloat16": (
        drawn((64, 64), (64, 64), dtype="bfloat16"),
        {
            "torch": F.mse_loss,
            "wide": lambda x, y: F.mse_loss(x.float(), y.float()).bfloat16(),
            "double": widened(F.mse_loss),
        },
    ),
    "cumulative sum, float32": (
        drawn((30, 200), dtype="float32"),
        {
            "torch": lambda x: x.cumsum(1),
            "numpy": arrays(lambda x: np.cumsum(x, 1)),
            "triangle": lambda x: x @ torch.ones(200, 200).triu(),
            "double": widened(lambda x: x.cumsum(1)),
        },
    ),
    "batched product, float64": (
        drawn((6, 20, 40), (6, 40, 12)),
        {
            "torch": torch.bmm,
            "einsum": lambda x, y: torch.einsum("bij,bjk->bik", x, y),
            "numpy": arrays(np.matmul),
            "loop": lambda x, y: torch.stack([a @ b for a, b in zip(x, y, strict=True)]),
        },
    ),
}

SAME: dict[str, Same] = SUMS | SERIES | LINEAR | POINTS | EXACT | LAYERS


def _paired() -> dict[str, Operation]:
    """Each program as a baseline of the two that follow it."""
    pairs: dict[str, Operation] = {}
    for name, (inputs, programs) in SAME.items():
        there = [(words, program) for words, program in programs.items() if program]
        for at, (words, baseline) in enumerate(there):
            others = [there[(at + step) % len(there)] for step in range(1, min(3, len(there)))]
            pairs[f"{name}, {words}"] = (inputs, baseline, dict(others))
    return pairs


def _narrow(program: Program) -> Program:
    return lambda *given: program(*(t.float().double() if t.dtype == torch.float64 else t for t in given))


def _shortened(program: Program) -> Program:
    """Without the last element of the first input's first axis, which is zero instead."""

    def shortened(*given: Any) -> Any:
        first = given[0].clone()
        first[-1] = 0
        return program(first, *given[1:])

    return shortened


def _larger(program: Program) -> Program:
    def larger(*given: Any) -> Any:
        answer = program(*given)
        return answer * (1 + 1e-9)

    return larger


UNMOVED = ("running maximum", "median", "quantile", "worst loss", "moving maximum")  # by one element, mostly


def _wrong() -> dict[str, Operation]:
    """Three wrong programs for each operation in float64."""
    wrong: dict[str, Operation] = {}
    for name, (inputs, programs) in (SUMS | SERIES | LINEAR | POINTS).items():
        if "float32" in name:
            continue
        right = next(iter(programs.values()))
        made = {"float32": _narrow(right), "a part in 1e9": _larger(right)}
        if name not in UNMOVED:
            made["the last left out"] = _shortened(right)
        wrong[name] = (inputs, right, made)
    return wrong


FOREIGN, FOREIGN_WRONG = _paired(), _wrong()
