"""Rounding errors of sums in programs whose operations cannot be seen: numpy, plain Python, compiled code.

Adding n numbers one after the other gives the exact sum of other numbers: the i-th is off by the roundings of all
partial sums that contain it, that is, by a random walk along the sum (Higham, Accuracy and Stability of Numerical
Algorithms, 4.2). So the inputs are moved by such walks along the axes that the outputs sum over, and the program is run
on them. Where the roundings of a sum share a sign, as those of equal numbers do, the walk goes straight on. Products
and other orders of the same sum have errors of the same size or smaller.

An axis is summed over if changing one half of the input along it changes nearly all elements of an output: a function
of single elements, or of rows, changes only those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aisp_mcp.judge.protocol.draws.rng import EXACT_PARTS
from aisp_mcp.judge.protocol.module_loader import flatten
from aisp_mcp.judge.verifier.inputs.files import copied_inputs

# Share of an input by which its half is changed, and of the elements of an output that must change: sums may round a
# change away, and a maximum or a bin does not see most changes. Both are chosen.
CHANGE, MOST = 2.0**-7, 0.75
# Error of a sum, as a share of it, that roundings of one sign reach at most: longer sums in float32 use lanes. Chosen.
MOST_STRAIGHT = 1e-3
# Share of the elements of an input that are exact, above which ties among them are kept, and the size up to which they
# are. Chosen: of bfloat16, a few of the plain values are exact; exact ones are drawn up to 8, and outliers are 100, of
# which a small matrix may be full.
MOST_EXACT, MOST_TIED = 0.5, 8.0

Run = Callable[[dict[str, Any]], Any]
Axes = Mapping[str, Sequence[int]]  # axes that the outputs sum over, by input


def summed_axes(run: Run, inputs: dict[str, Any]) -> Axes:
    """The axes of each input that the outputs of run() sum over. The inputs stay as they are."""
    usual = _numbers(run(copied_inputs(inputs)))
    found = {}
    for name, value in inputs.items():
        if is_real(value):
            axes = [axis for axis in range(value.ndim) if value.shape[axis] > 1]
            found[name] = [axis for axis in axes if _is_summed(run, inputs, name, axis, usual)]
    return found


def walked(values: Any, axes: Sequence[int], eps: float, draw: Any, *, straight: bool) -> Any:
    """The values, each off by the roundings of the partial sums that contain it. eps: of the sums. draw: a generator.

    straight: all roundings are half an eps, upwards.
    """
    import torch

    if not axes:
        return values
    rest = [axis for axis in range(values.ndim) if axis not in axes]
    lines = values.permute(*axes, *rest)
    steps = torch.full(lines.flatten(0, len(axes) - 1).shape, 0.5, dtype=torch.float64)
    if not straight:
        steps.uniform_(-0.5, 0.5, generator=draw)
    walk = steps.mul_(eps).flip(0).cumsum(0).flip(0).view(lines.shape).to(values.device)
    order = [*axes, *rest]
    return values * (1.0 + alike(walk.permute(*[order.index(axis) for axis in range(values.ndim)]), values))


def alike(shares: Any, values: Any) -> Any:
    """The shares by which values are moved, one for all that are equal where most are exact (see draws/rng.py): sums of
    those round nothing, and what a program decides by ties among them is no rounding.
    """
    if values.is_complex():
        return shares
    parts = (values.double() * max(EXACT_PARTS)).abs()
    is_exact = (parts == parts.round()) & (values.abs() <= MOST_TIED)
    if float(is_exact.double().mean()) <= MOST_EXACT:
        return shares
    return shares.where(~is_exact, shares.flatten()[parts.where(is_exact, 0.0).long() % shares.numel()])


def terms(inputs: Mapping[str, Any], axes: Axes) -> int:
    """The largest number of elements of one input that are added."""
    return max((math.prod(inputs[name].shape[axis] for axis in summed) for name, summed in axes.items()), default=1)


def is_real(value: Any) -> bool:
    """Return True for a tensor of floating-point numbers."""
    return hasattr(value, "is_complex") and bool(value.is_floating_point() or value.is_complex())


def _is_summed(run: Run, inputs: dict[str, Any], name: str, axis: int, usual: list[Any]) -> bool:
    size = inputs[name].shape[axis]
    for begin, length in ((0, size // 2), (size // 2, size - size // 2)):
        changed = copied_inputs(inputs)
        changed[name].narrow(axis, begin, length).mul_(1.0 + CHANGE)
        outputs = _numbers(run(changed))
        if len(outputs) == len(usual) and any(map(_differ_mostly, outputs, usual)):
            return True
    return False


def _differ_mostly(one: Any, other: Any) -> bool:
    if one.shape != other.shape or not one.numel():
        return False
    return float((one != other).double().mean()) >= MOST


def _numbers(output: Any) -> list[Any]:
    return [tensor for _, tensor in flatten(output) if is_real(tensor)]
