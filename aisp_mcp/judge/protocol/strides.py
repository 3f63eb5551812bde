"""Orders of dimensions in memory: how a worker says that its outputs are laid out in another way than the baseline's.

An order is one number in the control block, from which the reader computes the strides itself. So they cover the bytes
of the output without gaps or overlaps, whatever a worker writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from aisp_mcp.judge.protocol.layout import TensorSpec

MOST_DIMS = 14  # that fit into one number


def order_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Dimensions from the largest stride to the smallest; None if there are gaps, overlaps or too many dimensions."""
    order = tuple(sorted(range(len(shape)), key=lambda dim: (-strides[dim], shape[dim] > 1)))
    if len(shape) > MOST_DIMS or 0 in shape:
        return None
    alike = zip(shape, strides, _dense(shape, order), strict=True)
    return order if all(size == 1 or stride == expected for size, stride, expected in alike) else None


def _dense(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * shape[dim]
    return tuple(strides)


def encode(order: Sequence[int]) -> int:
    """The number of an order; never 0, which stands for the contract's strides."""
    number = 1
    for dim in order:
        number = number << 4 | dim
    return number


def in_order(spec: TensorSpec, number: int) -> TensorSpec:
    """The contract with the strides of that order; unchanged if the number is no order of its dimensions, or if its own
    strides have gaps or overlaps.
    """
    dims = len(spec.shape)
    order = [number >> 4 * at & 15 for at in reversed(range(dims))]
    if dims > MOST_DIMS or number >> 4 * dims != 1 or sorted(order) != list(range(dims)):
        return spec
    if spec.nbytes != math.prod(spec.shape) * spec.itemsize:
        return spec
    return replace(spec, stride=_dense(spec.shape, order))
