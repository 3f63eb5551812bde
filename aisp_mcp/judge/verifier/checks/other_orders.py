"""The errors of valid orders of operations, where the baseline's own error is not representative."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from aisp_mcp.judge.verifier.inputs.bank import InputBank

# Valid orders may exceed by these factors the effect of rounding-sized noise (see jittered.py) and that of adding terms
# one by one.
ROUNDINGS_ALLOWED, ORDERS_ALLOWED = 6.0, 2.0
# On plain inputs, a sum adds at most this many terms one by one: longer ones use lanes. On adversarial inputs the
# roundings of a sum share a sign, so more of them count.
LANES_TERMS, ORDERED_SLACK = 8192.0, 8.0
# The largest of four draws is 1.6 times as large as one of them in the root-mean-square of many elements.
MORE_DRAWS, MANY = 2.0, 1 << 10


def other_orders(
    bank: InputBank, seed: int, mode: str, dtype: str, slack: float = 1.0
) -> Iterator[tuple[list[Any], float]]:
    """Yield (the largest error of each output element under valid orders of operations, the factor by which further
    ones may still be larger as a whole). It grows with every evaluation of the reference. dtype: of an output. slack:
    on adversarial inputs, what the contract allows there.
    """
    allowed: list[Any] = []
    for errors, factor in _evaluations(bank, seed, mode, dtype, slack):
        allowed = _larger(allowed, errors) if allowed else errors
        enough = min(error.numel() for error in allowed) >= MANY
        yield allowed, factor if enough else math.inf


def _evaluations(bank: InputBank, seed: int, mode: str, dtype: str, slack: float) -> Iterator[tuple[list[Any], float]]:
    """Each kind of order once, then further draws of noise."""
    is_plain = mode == "plain"
    eps, most_terms = _eps(dtype, is_plain), LANES_TERMS if is_plain else math.inf
    factor = ROUNDINGS_ALLOWED * (1.0 if is_plain else min(slack, ORDERED_SLACK))
    draws = ([error * factor for error in rounding] for rounding in bank.rounding(seed, mode, eps, most_terms))
    kinds: list[Callable[[], list[Any]]] = [lambda: next(draws)]
    if dtype not in ("float64", "complex128"):
        kinds.append(lambda: [error * ORDERS_ALLOWED for error in bank.in_order(seed, mode)])
    if mode == "constant":
        kinds.append(lambda: bank.cancelled(seed, mode))
    for evaluation in kinds:
        yield evaluation(), MORE_DRAWS if evaluation is kinds[-1] else math.inf
    for draw in draws:
        yield draw, MORE_DRAWS


def _larger(one: list[Any], other: list[Any]) -> list[Any]:
    return [left.maximum(right) for left, right in zip(one, other, strict=True)]


def _eps(dtype: str, is_plain: bool) -> float:
    """Rounding unit of intermediate results for an output of that type. On plain inputs, narrow outputs are rounded
    once, from wider sums; where numbers cancel, every operation may have rounded.
    """
    import torch

    kind = torch.finfo(getattr(torch, dtype))
    return float(min(kind.eps, torch.finfo(torch.float32).eps) if is_plain or kind.bits < 16 else kind.eps)
