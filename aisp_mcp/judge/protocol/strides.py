"""Orders of dimensions in memory: how a worker says that its outputs are laid out in another way than the baseline's.

An order is one number in the control block, from which the reader computes the strides itself. So they cover the bytes
of the output without gaps or overlaps, whatever a worker writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aisp_mcp.judge.protocol.layout import TensorSpec

MOST_DIMS = 14  # that fit into one number


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if the strides cover a block of memory without gaps or overlaps, in some order of the dimensions."""
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != step:
            return False
        step *= size if size > 1 else 1
    return True


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides that cover a block of memory. order: dimensions from the largest stride to the smallest."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * max(shape[dim], 1)
    return tuple(strides)


def order_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Dimensions from the largest stride to the smallest; None if there are gaps, overlaps or too many dimensions."""
    if len(shape) > MOST_DIMS or 0 in shape or not is_dense(shape, strides):
        return None
    return tuple(sorted(range(len(shape)), key=lambda dim: -strides[dim]))


def encode(order: Sequence[int]) -> int:
    """The number of an order; never 0, which stands for the contract's strides."""
    number = 1
    for dim in order:
        number = number << 4 | dim
    return number


def in_order(spec: TensorSpec, number: int) -> TensorSpec:
    """The contract, whose own strides are dense, with those of that order; unchanged if the number is no order of its
    dimensions.
    """
    dims = len(spec.shape)
    order = [number >> 4 * at & 15 for at in reversed(range(dims))]
    if dims > MOST_DIMS or number >> 4 * dims != 1 or sorted(order) != list(range(dims)):
        return spec
    return replace(spec, stride=dense_strides(spec.shape, order))
