"""More honest alternatives: other formulas of activations, kernels, solutions and steps of optimizers.

By name: the inputs, the baseline, and the alternatives. Programs take tensors by position.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from honest_programs import Operation, by_numpy, matrix, two


def tanh_by_expm1(x: Any) -> Any:
    power = torch.expm1(-2 * x.abs())
    return -power / (power + 2) * x.sign()


def kernel_of_distances(x: Any, y: Any) -> Any:
    return (-(x[:, None] - y[None]).square().mean(2)).exp()


def kernel_by_product(x: Any, y: Any) -> Any:
    squares = x.square().sum(1, keepdim=True) + y.square().sum(1) - 2 * x @ y.T
    return (squares.clamp_min(0) / -x.shape[1]).exp()


def solved(x: Any, y: Any) -> Any:
    return torch.linalg.solve(definite(x), y)


def definite(x: Any) -> Any:
    return x @ x.T / x.shape[1] + torch.eye(len(x))


def clipped(x: Any, y: Any) -> Any:
    return x * (1.0 / (torch.nn.utils.get_total_norm([x, y]) + 1e-6)).clamp_max(1.0)


def clipped_by_squares(x: Any, y: Any) -> Any:
    return x / (torch.sqrt((x * x).sum() + (y * y).sum()) + 1e-6).clamp_min(1.0)


def momentum(x: Any, y: Any, z: Any) -> Any:
    """A step of Adam at its tenth iteration."""
    first, second = 0.9 * y + 0.1 * x, 0.99 * z.square() + 0.01 * x.square()
    return 0.1 * (first / (1 - 0.9**10)) / ((second / (1 - 0.99**10)).sqrt() + 1e-8)


def folded_momentum(x: Any, y: Any, z: Any) -> Any:
    first, second = torch.lerp(y, x, 0.1), torch.addcmul(0.99 * z * z, x, x, value=0.01)
    size = 0.1 * math.sqrt(1 - 0.99**10) / (1 - 0.9**10)
    return size * first / (second.sqrt() + 1e-8 * math.sqrt(1 - 0.99**10))


POINTS: dict[str, Operation] = {
    "gelu_forms": (
        matrix(),
        F.gelu,
        {
            "erfc": lambda x: x * (0.5 * torch.special.erfc(-x * 0.70710678)),
            "normal": lambda x: x * torch.special.ndtr(x),
            "compiled": torch.compile(F.gelu),
        },
    ),
    "gelu_tanh_forms": (
        matrix(),
        lambda x: F.gelu(x, approximate="tanh"),
        {
            "powers": lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3)))),
            "factored": lambda x: 0.5 * x * (1 + torch.tanh(x * (0.79788456 + 0.035677408 * x * x))),
            "quotient": lambda x: x / (1 + torch.exp(-2 * 0.79788456 * (x + 0.044715 * x * x * x))),
        },
    ),
    "softplus_forms": (
        matrix(),
        F.softplus,
        {
            "log1p": lambda x: x.clamp_min(0) + torch.log1p((-x.abs()).exp()),
            "log_sigmoid": lambda x: -F.logsigmoid(-x),
            "numpy": by_numpy(lambda x: np.logaddexp(x, np.float32(0))),
        },
    ),
    "sigmoid": (
        matrix(),
        torch.sigmoid,
        {
            "tanh": lambda x: 0.5 * torch.tanh(0.5 * x) + 0.5,
            "quotient": lambda x: 1 / (1 + (-x).exp()),
            "expit": by_numpy(lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))),
            "two_sides": lambda x: torch.where(x >= 0, 1.0, (x).clamp_max(0).exp()) / (1 + (-x.abs()).exp()),
        },
    ),
    "log_sigmoid": (matrix(), F.logsigmoid, {"log1p": lambda x: x.clamp_max(0) - torch.log1p((-x.abs()).exp())}),
    "tanh": (matrix(), torch.tanh, {"expm1": tanh_by_expm1, "numpy": by_numpy(np.tanh)}),
    "swiglu": (
        two((64, 1024), (64, 1024)),
        lambda x, y: F.silu(x) * y,
        {
            "tanh": lambda x, y: 0.5 * x * (1 + torch.tanh(0.5 * x)) * y,
            "quotient": lambda x, y: x * y / (1 + (-x).exp()),
        },
    ),
    "kernel_of_distances": (two((96, 64), (80, 64)), kernel_of_distances, {"product": kernel_by_product}),
    "entropy": (
        matrix(),
        lambda x: -(torch.softmax(x, 1) * torch.log_softmax(x, 1)).sum(1),
        {
            "mean": lambda x: x.logsumexp(1) - (x.softmax(1) * x).sum(1),
            "library": lambda x: torch.special.entr(x.softmax(1)).sum(1),
        },
    ),
    "solution": (
        two((48, 64), (48, 16)),
        solved,
        {
            "inverse": lambda x, y: torch.linalg.inv(definite(x)) @ y,
            "cholesky": lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(definite(x))),
            "numpy": by_numpy(lambda x, y: np.linalg.solve(x @ x.T / x.shape[1] + np.eye(len(x), dtype=x.dtype), y)),
        },
    ),
    "polynomial": (
        matrix(),
        lambda x: 1 + x + x**2 / 2 + x**3 / 6 + x**4 / 24,
        {
            "horner": lambda x: 1 + x * (1 + x * (0.5 + x * (1 / 6 + x / 24))),
            "estrin": lambda x: (1 + x) + (x * x) * ((0.5 + x / 6) + (x * x) / 24),
        },
    ),
    "mixture": (
        two((64, 1024), (64, 1024), (64, 1)),
        lambda x, y, z: torch.lerp(x, y, z.sigmoid()),
        {
            "two_weights": lambda x, y, z: (1 - z.sigmoid()) * x + z.sigmoid() * y,
            "difference": lambda x, y, z: x + z.sigmoid() * (y - x),
        },
    ),
    "clipped_gradient": (two((128, 256), (64, 64)), clipped, {"squares": clipped_by_squares}),
    "adam_step": (two((64, 256), (64, 256), (64, 256)), momentum, {"folded": folded_momentum}),
}
