"""Honest alternatives that torch does not see compute: numpy and plain Python, in float64 and float32; and wrong ones.

By name: the inputs, the baseline, and the alternatives, as in honest_points.py. UNSEEN_WRONG has the same with programs
that must be refused: they compute in float32 what the baseline computes in float64, leave something out, or add to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from honest_programs import Operation

from aisp_mcp.judge.candidate.calling import tensors

Numbers = list[float]


def arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays as one of tensors."""
    return lambda *given: tensors(function(*(tensor.numpy() for tensor in given)))


def lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of lists as one of tensors."""
    return lambda *given: tensors(function(*(tensor.tolist() for tensor in given)))


def drawn(*shapes: tuple[int, ...], dtype: str = "float64", positive: bool = False) -> Callable[[Any], dict[str, Any]]:
    def inputs(rng: Any) -> dict[str, Any]:
        made = {name: rng.randn(*shape, dtype=dtype) for name, shape in zip("xyzw", shapes, strict=False)}
        return {name: value.abs() + 0.5 for name, value in made.items()} if positive else made

    return inputs


def loop_sum(x: Any) -> float:
    total = 0.0
    for value in x.tolist():
        total += value
    return total


def loop_squares(x: Any) -> float:
    total = 0.0
    for value in x.tolist():
        total += value * value
    return total


def loop_dot(x: Any, y: Any) -> float:
    total = 0.0
    for one, other in zip(x.tolist(), y.tolist(), strict=True):
        total += one * other
    return total


def two_pass_variance(xs: Numbers) -> float:
    mean = sum(xs) / len(xs)
    return sum((x - mean) ** 2 for x in xs) / len(xs)


def welford(xs: Numbers) -> float:
    mean = spread = 0.0
    for count, x in enumerate(xs, 1):
        delta = x - mean
        mean += delta / count
        spread += delta * (x - mean)
    return spread / len(xs)


def loop_product(x: Any, y: Any) -> Any:
    out = np.zeros((len(x), y.shape[1]), x.dtype)
    for row in range(len(x)):
        for inner in range(x.shape[1]):
            out[row] += x[row, inner] * y[inner]
    return out


def loop_distances(x: Any, y: Any) -> Any:
    out = np.zeros((len(x), len(y)), x.dtype)
    for row in range(len(x)):
        for other in range(len(y)):
            out[row, other] = np.sqrt(np.sum((x[row] - y[other]) ** 2))
    return out


def loop_scan(x: Any) -> Any:
    out, total = np.empty_like(x), x.dtype.type(0)
    for at, value in enumerate(x):
        total += value
        out[at] = total
    return out


def ema(x: Any, share: float = 0.05) -> Any:
    out, state = np.empty_like(x), x[0]
    for at, value in enumerate(x):
        state = state + share * (value - state)
        out[at] = state
    return out


def ema_rewritten(x: Any, share: float = 0.05) -> Any:
    out, state = np.empty_like(x), float(x[0])
    for at, value in enumerate(x.tolist()):
        state = (1.0 - share) * state + share * value
        out[at] = state
    return out


def moving(x: Any, width: int = 50) -> Any:
    return np.array([x[at : at + width].mean() for at in range(len(x) - width + 1)])


def moving_by_scan(x: Any, width: int = 50) -> Any:
    sums = np.cumsum(np.concatenate([np.zeros(1, x.dtype), x]))
    return (sums[width:] - sums[:-width]) / width


def loop_softmax(x: Any) -> Any:
    return np.array([np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in x])


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def loop_covariance(x: Any) -> Any:
    centred, out = x - x.mean(0), np.zeros((x.shape[1], x.shape[1]), x.dtype)
    for row in centred:
        out += np.outer(row, row)
    return out / (len(x) - 1)


def horner(x: Any) -> Any:
    out = np.zeros_like(x)
    for factor in (0.3, -1.2, 0.7, 2.0, -0.4):
        out = out * x + factor
    return out


def powers(x: Any) -> Any:
    return sum(factor * x ** (4 - at) for at, factor in enumerate((0.3, -1.2, 0.7, 2.0, -0.4)))


def log_sum(x: Any) -> float:
    return math.log(sum(math.exp(value) for value in x.tolist()))


def shifted_log_sum(x: Any) -> Any:
    most = x.max()
    return most + np.log(np.exp(x - most).sum())


def norm_of_rows(x: Any) -> Any:
    return np.array([math.sqrt(sum(value * value for value in row)) for row in x.tolist()])


def convolved(x: Any, y: Any) -> Any:
    return np.array([np.dot(x[at : at + len(y)], y[::-1]) for at in range(len(x) - len(y) + 1)])


def by_fft(x: Any, y: Any) -> Any:
    size = len(x) + len(y) - 1
    return np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(y, size), size)[len(y) - 1 : len(x)]


def trapezoid(x: Any) -> Any:
    return sum((one + other) / 2 for one, other in zip(x[:-1].tolist(), x[1:].tolist(), strict=True))


def entropy(x: Any) -> Any:
    total = sum(x.tolist())
    return -sum(value / total * math.log(value / total) for value in x.tolist())


def array_entropy(x: Any) -> float:
    shares = x / x.sum()
    return float(-(shares * np.log(shares)).sum())


def solved(x: Any, y: Any) -> Any:
    return np.linalg.solve(x @ x.T / x.shape[1] + np.eye(len(x)), y)


def jacobi_sum(x: Any) -> Any:
    for _ in range(20):
        x = (np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1)) / 4
    return x


def jacobi_grouped(x: Any) -> Any:
    for _ in range(20):
        x = 0.25 * ((np.roll(x, 1, 1) + np.roll(x, -1, 1)) + (np.roll(x, 1, 0) + np.roll(x, -1, 0)))
    return x


LONG, TALL, FLAT, NARROW = (10_000,), (4096, 16), (64, 1024), "float32"
SINGLE = partial(drawn, dtype=NARROW)

UNSEEN: dict[str, Operation] = {
    "sum, loop": (
        drawn(LONG),
        arrays(loop_sum),
        {
            "numpy": arrays(np.sum),
            "fsum": arrays(lambda x: math.fsum(x.tolist())),
            "built in": arrays(lambda x: sum(x.tolist())),
            "backwards": arrays(lambda x: loop_sum(x[::-1])),
            "scan": arrays(lambda x: np.cumsum(x)[-1]),
        },
    ),
    "sum, numpy": (
        drawn(LONG),
        arrays(np.sum),
        {"loop": arrays(loop_sum), "fsum": arrays(lambda x: math.fsum(x.tolist()))},
    ),
    "sum, fsum": (
        drawn(LONG),
        arrays(lambda x: math.fsum(x.tolist())),
        {"loop": arrays(loop_sum), "numpy": arrays(np.sum)},
    ),
    "sum, float32": (
        SINGLE(LONG),
        arrays(np.sum),
        {
            "loop in double": arrays(lambda x: np.float32(loop_sum(x))),
            "scan": arrays(lambda x: np.cumsum(x)[-1]),
            "double": arrays(lambda x: x.sum(dtype=np.float64).astype(np.float32)),
            "dot": arrays(lambda x: x @ np.ones_like(x)),
        },
    ),
    "sum of rows, float32": (
        SINGLE(FLAT),
        arrays(lambda x: x.astype(np.float64).sum(1).astype(np.float32)),
        {
            "single": arrays(lambda x: x.sum(1)),
            "scan": arrays(lambda x: np.cumsum(x, 1)[:, -1].copy()),
            "einsum": arrays(lambda x: np.einsum("ij->i", x)),
        },
    ),
    "squares, loop": (
        drawn(LONG),
        arrays(loop_squares),
        {
            "dot": arrays(lambda x: np.dot(x, x)),
            "sum": arrays(lambda x: (x**2).sum()),
            "einsum": arrays(lambda x: np.einsum("i,i", x, x)),
            "fsum": arrays(lambda x: math.fsum(v * v for v in x.tolist())),
            "norm": arrays(lambda x: np.linalg.norm(x) ** 2),
        },
    ),
    "squares, dot": (
        drawn(LONG),
        arrays(lambda x: np.dot(x, x)),
        {"loop": arrays(loop_squares), "sum": arrays(lambda x: (x * x).sum())},
    ),
    "dot, loop": (
        drawn(LONG, LONG),
        arrays(loop_dot),
        {
            "numpy": arrays(np.dot),
            "sum": arrays(lambda x, y: (x * y).sum()),
            "fsum": arrays(lambda x, y: math.fsum((x * y).tolist())),
        },
    ),
    "mean, loop": (
        drawn(LONG),
        arrays(lambda x: loop_sum(x) / len(x)),
        {
            "numpy": arrays(np.mean),
            "statistics": lists(statistics.fmean),
            "of means": arrays(lambda x: x.reshape(100, -1).mean(1).mean()),
        },
    ),
    "columns, loop": (
        drawn(TALL),
        arrays(lambda x: np.array([np.sum(x[:, at] ** 2) for at in range(x.shape[1])])),
        {
            "axis": arrays(lambda x: (x**2).sum(0)),
            "einsum": arrays(lambda x: np.einsum("ij,ij->j", x, x)),
            "contiguous": arrays(lambda x: (np.ascontiguousarray(x.T) ** 2).sum(1)),
            "loops": arrays(lambda x: np.array([loop_squares(c) for c in x.T])),
        },
    ),
    "means of columns": (
        drawn(TALL),
        arrays(lambda x: x.mean(0)),
        {
            "loops": arrays(lambda x: np.array([loop_sum(c) for c in x.T]) / len(x)),
            "product": arrays(lambda x: np.full(len(x), 1 / len(x)) @ x),
        },
    ),
    "variance, lists": (
        drawn((2000,)),
        lists(two_pass_variance),
        {
            "numpy": lists(np.var),
            "welford": lists(welford),
            "statistics": lists(statistics.pvariance),
        },
    ),
    "deviation, lists": (
        drawn((2000,)),
        lists(lambda xs: two_pass_variance(xs) ** 0.5),
        {
            "statistics": lists(statistics.pstdev),
            "numpy": lists(np.std),
        },
    ),
    "variance of columns": (
        drawn(TALL),
        arrays(lambda x: x.var(0)),
        {
            "loop": arrays(lambda x: np.array([two_pass_variance(c.tolist()) for c in x.T])),
            "welford": arrays(lambda x: np.array([welford(c.tolist()) for c in x.T])),
        },
    ),
    "product, loop": (
        drawn((24, 64), (64, 32)),
        arrays(loop_product),
        {
            "matmul": arrays(np.matmul),
            "einsum": arrays(lambda x, y: np.einsum("ij,jk", x, y)),
            "sum": arrays(lambda x, y: (x[:, :, None] * y).sum(1)),
        },
    ),
    "product, float32": (
        SINGLE((24, 256), (256, 32)),
        arrays(np.matmul),
        {
            "loop": arrays(loop_product),
            "double": arrays(lambda x, y: (x.astype(float) @ y.astype(float)).astype(np.float32)),
            "einsum": arrays(lambda x, y: np.einsum("ij,jk", x, y)),
        },
    ),
    "distances, loop": (
        drawn((24, 32), (20, 32)),
        arrays(loop_distances),
        {
            "broadcast": arrays(lambda x, y: np.sqrt(((x[:, None] - y) ** 2).sum(-1))),
            "norm": arrays(lambda x, y: np.linalg.norm(x[:, None] - y, axis=-1)),
        },
    ),
    "scan, loop": (
        drawn((4096,)),
        arrays(loop_scan),
        {
            "numpy": arrays(np.cumsum),
            "blocks": arrays(
                lambda x: np.concatenate(
                    [
                        part.cumsum() + start
                        for part, start in zip(
                            x.reshape(64, -1),
                            np.concatenate([[0], x.reshape(64, -1).sum(1).cumsum()[:-1]]),
                            strict=True,
                        )
                    ]
                )
            ),
        },
    ),
    "scan, float32": (
        SINGLE((4096,)),
        arrays(np.cumsum),
        {"double": arrays(lambda x: np.cumsum(x.astype(float)).astype(np.float32)), "loop": arrays(loop_scan)},
    ),
    "exponential mean": (drawn((4096,)), arrays(ema), {"rewritten": arrays(ema_rewritten)}),
    "moving mean": (
        drawn((2000,)),
        arrays(moving),
        {"convolution": arrays(lambda x: np.convolve(x, np.ones(50) / 50, "valid"))},
    ),
    "softmax, loop": (drawn(FLAT), arrays(loop_softmax), {"numpy": arrays(softmax)}),
    "softmax, float32": (
        SINGLE(FLAT),
        arrays(softmax),
        {"loop": arrays(loop_softmax), "double": arrays(lambda x: softmax(x.astype(float)).astype(np.float32))},
    ),
    "covariance": (
        drawn((1000, 12)),
        arrays(loop_covariance),
        {
            "numpy": arrays(lambda x: np.cov(x.T)),
            "product": arrays(lambda x: (x - x.mean(0)).T @ (x - x.mean(0)) / (len(x) - 1)),
        },
    ),
    "polynomial": (
        drawn((4096,)),
        arrays(powers),
        {"horner": arrays(horner), "numpy": arrays(lambda x: np.polyval([0.3, -1.2, 0.7, 2.0, -0.4], x))},
    ),
    "log of sums": (
        drawn((2000,)),
        arrays(shifted_log_sum),
        {"loop": arrays(lambda x: float(x.max()) + log_sum(x - x.max()))},
    ),
    "norms of rows": (
        drawn(FLAT),
        arrays(norm_of_rows),
        {
            "numpy": arrays(lambda x: np.linalg.norm(x, axis=1)),
            "hypot": arrays(lambda x: np.array([math.hypot(*row) for row in x])),
        },
    ),
    "convolution": (
        drawn((1000,), (31,)),
        arrays(convolved),
        {"numpy": arrays(lambda x, y: np.convolve(x, y, "valid"))},
    ),
    "trapezoid": (
        drawn((4096,)),
        arrays(trapezoid),
        {"numpy": arrays(np.trapezoid), "ends": arrays(lambda x: x.sum() - (x[0] + x[-1]) / 2)},
    ),
    "entropy": (drawn((4096,), positive=True), arrays(entropy), {"numpy": arrays(array_entropy)}),
    "relaxation": (drawn((32, 32)), arrays(jacobi_sum), {"grouped": arrays(jacobi_grouped)}),
    "weighted mean": (
        drawn((4096,), (4096,), positive=True),
        arrays(lambda x, y: loop_dot(x, y) / loop_sum(y)),
        {"numpy": arrays(lambda x, y: np.average(x, weights=y))},
    ),
    "correlation": (
        drawn((4096,), (4096,)),
        arrays(lambda x, y: float(np.corrcoef(x, y)[0, 1])),
        {
            "by hand": arrays(
                lambda x, y: (
                    ((x - x.mean()) * (y - y.mean())).sum()
                    / np.sqrt(((x - x.mean()) ** 2).sum() * ((y - y.mean()) ** 2).sum())
                )
            ),
        },
    ),
    "products of a loop": (
        drawn((400,), positive=True),
        lists(math.prod),
        {"numpy": lists(np.prod), "logs": lists(lambda xs: math.exp(math.fsum(map(math.log, xs))))},
    ),
}


def single(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays in float32, as one of tensors; its result in float64 again."""
    return lambda *given: tensors(np.float64(function(*(tensor.numpy().astype(np.float32) for tensor in given))))


UNSEEN_WRONG: dict[str, Operation] = {
    "sum": (
        drawn(LONG),
        arrays(loop_sum),
        {
            "float32": single(np.sum),
            "one left out": arrays(lambda x: loop_sum(x[1:])),
            "a part in 1e9": arrays(lambda x: loop_sum(x) * (1 + 1e-9)),
            "a part in 1e11": arrays(lambda x: loop_sum(x) + np.abs(x).sum() * 1e-11),
        },
    ),
    "squares": (
        drawn(LONG),
        arrays(loop_squares),
        {
            "float32": single(lambda x: np.dot(x, x)),
            "one left out": arrays(lambda x: np.dot(x[:-1], x[:-1])),
            "a part in 1e9": arrays(lambda x: np.dot(x, x) * (1 - 1e-9)),
        },
    ),
    "columns": (
        drawn(TALL),
        arrays(lambda x: (x**2).sum(0)),
        {
            "float32": single(lambda x: (x**2).sum(0)),
            "a row left out": arrays(lambda x: (x[:-1] ** 2).sum(0)),
            "half the rows": arrays(lambda x: 2 * (x[::2] ** 2).sum(0)),
        },
    ),
    "sum, float32": (
        SINGLE(LONG),
        arrays(np.sum),
        {
            "float16": arrays(lambda x: np.float32(x.astype(np.float16).sum(dtype=np.float32))),
            "one left out": arrays(lambda x: x[1:].sum()),
        },
    ),
    "rows, float32": (
        SINGLE(FLAT),
        arrays(lambda x: x.sum(1)),
        {
            "float16": arrays(lambda x: x.astype(np.float16).sum(1, dtype=np.float32)),
            "one left out": arrays(lambda x: x[:, 1:].sum(1)),
        },
    ),
    "product": (
        drawn((24, 64), (64, 32)),
        arrays(np.matmul),
        {"float32": single(np.matmul), "a term left out": arrays(lambda x, y: x[:, 1:] @ y[1:])},
    ),
    "product, float32": (
        SINGLE((24, 256), (256, 32)),
        arrays(np.matmul),
        {"float16": arrays(lambda x, y: x.astype(np.float16).astype(np.float32) @ y)},
    ),
    "softmax": (drawn(FLAT), arrays(softmax), {"float32": single(softmax)}),
    "sort": (drawn(LONG), arrays(np.sort), {"float32": single(np.sort)}),
    "scan": (drawn((4096,)), arrays(np.cumsum), {"float32": single(np.cumsum)}),
    "variance": (
        drawn((2000,)),
        lists(two_pass_variance),
        {"of a sample": lists(statistics.variance), "float32": single(np.var)},
    ),
    "exponential": (drawn((4096,)), arrays(np.exp), {"float32": single(np.exp)}),
    "maximum": (drawn(FLAT), arrays(lambda x: x.max(1)), {"float32": single(lambda x: x.max(1))}),
    "entropy": (
        drawn((4096,), positive=True),
        arrays(entropy),
        {"float32": single(array_entropy), "without the last": arrays(lambda x: array_entropy(x[:-1]))},
    ),
}
