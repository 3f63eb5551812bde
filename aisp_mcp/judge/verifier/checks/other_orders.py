"""The errors of valid orders of operations, where the baseline's own error is not representative."""

from __future__ import annotations

import math
from typing import Any

from aisp_mcp.judge.verifier.inputs.bank import InputBank

# Valid orders may exceed by these factors the effect of rounding-sized noise (see jittered.py) and that of adding terms
# one by one.
ROUNDINGS_ALLOWED, ORDERS_ALLOWED = 6.0, 2.0
# On plain inputs, a sum adds at most this many terms one by one: longer ones use lanes. On adversarial inputs the
# roundings of a sum share a sign, so more of them count.
LANES_TERMS, ORDERED_SLACK = 8192.0, 8.0


def other_orders(bank: InputBank, seed: int, mode: str, dtype: str, slack: float = 1.0) -> list[Any]:
    """Largest error of each output element under valid orders of operations. dtype: of an output. slack: on adversarial
    inputs, what the contract allows there.
    """
    is_plain = mode == "plain"
    eps, most_terms = _eps(dtype, is_plain), LANES_TERMS if is_plain else math.inf
    factor = ROUNDINGS_ALLOWED * (1.0 if is_plain else min(slack, ORDERED_SLACK))
    allowed = [error * factor for error in bank.rounding(seed, mode, eps, most_terms)]
    if dtype not in ("float64", "complex128"):
        allowed = _larger(allowed, [error * ORDERS_ALLOWED for error in bank.in_order(seed, mode)])
    return _larger(allowed, bank.cancelled(seed, mode)) if mode == "constant" else allowed


def _larger(one: list[Any], other: list[Any]) -> list[Any]:
    return [left.maximum(right) for left, right in zip(one, other, strict=True)]


def _eps(dtype: str, is_plain: bool) -> float:
    """Rounding unit of intermediate results for an output of that type. On plain inputs, narrow outputs are rounded
    once, from wider sums; where numbers cancel, every operation may have rounded.
    """
    import torch

    kind = torch.finfo(getattr(torch, dtype))
    return float(min(kind.eps, torch.finfo(torch.float32).eps) if is_plain or kind.bits < 16 else kind.eps)
