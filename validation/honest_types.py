"""Honest alternatives in other types: bfloat16 and float16 with wider sums, complex numbers, integers, booleans, and
outputs of several tensors.

By name: the inputs, the baseline, and the alternatives. Programs take tensors by position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from honest_programs import Operation, flash, merged_moments, normalised, online_log_sum_exp, split_product

Inputs = Callable[[Any], dict[str, Any]]


def drawn(dtype: str, *shapes: tuple[int, ...]) -> Inputs:
    return lambda rng: {name: rng.randn(*shape, dtype=dtype) for name, shape in zip("xyz", shapes, strict=False)}


def counted(rng: Any) -> dict[str, Any]:
    return {"x": rng.randint(0, 64, 32, 512)}


def bytes_of_two(rng: Any) -> dict[str, Any]:
    return {"x": rng.randint(-128, 128, 64, 256, dtype="int8"), "y": rng.randint(-128, 128, 256, 48, dtype="int8")}


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in float32, rounded at the end."""
    return lambda x, *more: function(x.float(), *(tensor.float() for tensor in more)).to(x.dtype)


def rms_norm(x: Any) -> Any:
    return x * torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-6).to(x.dtype)


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def three_products(x: Any, y: Any) -> Any:
    """A complex product by Gauss's three real ones."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    one, two, three = (a + b) @ c, a @ (d - c), b @ (c + d)
    return torch.complex(one - three, one + two)


def inverse_transform(x: Any) -> Any:
    size = x.shape[1]
    angles = 2 * math.pi / size * (torch.outer(torch.arange(size), torch.arange(size)) % size).double()
    return x @ torch.polar(torch.ones_like(angles), angles).to(x.dtype) / size


def histogram(x: Any) -> Any:
    return torch.stack([torch.bincount(row, minlength=64) for row in x])


def histogram_of_sorted(x: Any) -> Any:
    edges = torch.arange(65).expand(len(x), 65).contiguous()
    return torch.searchsorted(x.sort(1).values, edges).diff(dim=1)


def local_maxima(x: Any) -> Any:
    return (x[:, 1:-1] > x[:, :-2]) & (x[:, 1:-1] >= x[:, 2:])


def local_maxima_by_signs(x: Any) -> Any:
    rises = x[:, 1:] > x[:, :-1]
    return rises[:, :-1] & ~rises[:, 1:]


def statistics(x: Any) -> dict[str, Any]:
    variance, mean = torch.var_mean(x, 1)
    return {"mean": mean, "variance": variance, "most": x.amax(1), "positive": x > 0}


def statistics_in_blocks(x: Any) -> dict[str, Any]:
    mean, variance = merged_moments(x)
    return {
        "positive": ~(x <= 0),
        "most": x.view(len(x), 8, -1).amax(2).amax(1),
        "mean": mean[:, 0],
        "variance": variance[:, 0] * x.shape[1] / (x.shape[1] - 1),
    }


def routed(x: Any) -> tuple[Any, Any]:
    """The weights of the four best of each row, and their number of candidates above zero."""
    values = x.topk(4, 1).values
    return torch.softmax(values, 1), (x > 0).sum(1)


def routed_by_sorting(x: Any) -> tuple[Any, Any]:
    powers = torch.softmax(x, 1).sort(1, descending=True).values[:, :4]
    return powers / powers.sum(1, keepdim=True), torch.count_nonzero(x.clamp_min(0), 1)


def _narrow(dtype: str) -> dict[str, Operation]:
    """Operations of one 16-bit type, whose sums are in float32."""
    matrix, weights = drawn(dtype, (64, 1024)), drawn(dtype, (64, 512), (512, 96))
    heads = drawn(dtype, (64, 64), (128, 64), (128, 64))
    return {
        f"product_{dtype}": (weights, torch.matmul, {"wide": wide(torch.matmul), "split_k": wide(split_product)}),
        f"softmax_{dtype}": (
            matrix,
            lambda x: torch.softmax(x, 1),
            {"wide": wide(lambda x: torch.softmax(x, 1)), "online": wide(lambda x: (x - _lse(x)).exp())},
        ),
        f"log_sum_exp_{dtype}": (
            matrix,
            wide(lambda x: torch.logsumexp(x, 1)),
            {"library": lambda x: torch.logsumexp(x, 1), "online": wide(online_log_sum_exp)},
        ),
        f"layer_norm_{dtype}": (
            matrix,
            lambda x: F.layer_norm(x, x.shape[1:]),
            {
                "wide": wide(lambda x: F.layer_norm(x, x.shape[1:])),
                "merged": wide(lambda x: normalised(x, *merged_moments(x))),
            },
        ),
        f"rms_norm_{dtype}": (
            matrix,
            rms_norm,
            {"wide": wide(lambda x: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6))},
        ),
        f"attention_{dtype}": (heads, attention, {"blocks_of_keys": wide(flash), "wide": wide(attention)}),
        f"gelu_{dtype}": (
            matrix,
            F.gelu,
            {"wide": wide(F.gelu), "erf": wide(lambda x: 0.5 * x * (1 + torch.erf(x * 0.70710678)))},
        ),
        f"sums_{dtype}": (
            matrix,
            lambda x: x.sum(1),
            {
                "wide": wide(lambda x: x.sum(1)),
                "blocks": wide(lambda x: x.view(len(x), 8, -1).sum(2).sum(1)),
                "ones": lambda x: x @ torch.ones(x.shape[1], dtype=x.dtype),
            },
        ),
        f"gate_{dtype}": (
            drawn(dtype, (64, 1024), (64, 1024)),
            wide(lambda x, y: F.silu(x) * y),
            {"tanh": wide(lambda x, y: 0.5 * x * (1 + torch.tanh(0.5 * x)) * y)},
        ),
    }


def _lse(x: Any) -> Any:
    return online_log_sum_exp(x)[:, None]


TYPES: dict[str, Operation] = {
    **_narrow("bfloat16"),
    **_narrow("float16"),
    "complex_product": (
        drawn("complex64", (64, 128), (128, 48)),
        torch.matmul,
        {
            "three_products": three_products,
            "four_products": lambda x, y: torch.complex(
                x.real @ y.real - x.imag @ y.imag, x.real @ y.imag + x.imag @ y.real
            ),
        },
    ),
    "complex_size": (
        drawn("complex64", (64, 512)),
        torch.abs,
        {"hypot": lambda x: torch.hypot(x.real, x.imag), "numpy": lambda x: torch.from_numpy(np.abs(x.numpy()))},
    ),
    "inverse_transform": (drawn("complex64", (32, 256)), torch.fft.ifft, {"product": inverse_transform}),
    "histogram": (
        counted,
        histogram,
        {"one_hot": lambda x: F.one_hot(x, 64).sum(1), "sorted": histogram_of_sorted},
    ),
    "integer_product": (
        bytes_of_two,
        lambda x, y: x.int() @ y.int(),
        {
            "float64": lambda x, y: (x.double() @ y.double()).int(),
            "float32": lambda x, y: (x.float() @ y.float()).int(),
            "numpy": lambda x, y: torch.from_numpy(x.numpy().astype(np.int32) @ y.numpy().astype(np.int32)),
        },
    ),
    "local_maxima": (drawn("float32", (64, 512)), local_maxima, {"signs": local_maxima_by_signs}),
    "statistics": (drawn("float32", (64, 1024)), statistics, {"blocks": statistics_in_blocks}),
    "routed": (drawn("float32", (256, 64)), routed, {"sorted": routed_by_sorting}),
}
