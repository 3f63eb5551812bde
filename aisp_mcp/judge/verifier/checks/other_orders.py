"""The errors that valid orders of operations may have where the baseline's own error tells too little."""

from __future__ import annotations

import math
from typing import Any

from aisp_mcp.judge.verifier.inputs.bank import InputBank

# Valid orders may be off by so many times what noise of the size of roundings does (see jittered.py), and by so many
# times what adding one term after the other does.
ROUNDINGS_ALLOWED, ORDERS_ALLOWED = 6.0, 2.0
# A sum adds so many terms one after the other on plain inputs: longer ones have several lanes. On adversarial inputs
# roundings of a sum have one sign, and more of them count.
LANES_TERMS, ORDERED_SLACK = 8192.0, 8.0


def other_orders(bank: InputBank, seed: int, mode: str, dtype: str, slack: float = 1.0) -> list[Any]:
    """Error of each element of each output of a call that other orders of operations may have. dtype: of an output.
    slack: on adversarial inputs, what the contract allows there.
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
    """Size of a rounding on the way to an output of that type. Narrow ones are rounded from wider sums on plain inputs;
    where numbers cancel, each operation may have rounded.
    """
    import torch

    kind = torch.finfo(getattr(torch, dtype))
    return float(min(kind.eps, torch.finfo(torch.float32).eps) if is_plain or kind.bits < 16 else kind.eps)
