"""Rounding errors of valid orders of operations, found by evaluating the reference with noise of that size.

The baseline's own error may be small by luck, and where numbers cancel it says nothing about other orders. So the
float64 reference is evaluated again with its inputs, and the result of each operation, off by a rounding. A sum is off
by as much as one computed term by term, whose roundings grow with its partial sums and the square root of its length.
Roundings of one sign do not average out; evaluate_in_order() computes their sum.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aisp_mcp.judge.verifier import sums
from aisp_mcp.judge.verifier.checks.pieces import pieces
from aisp_mcp.judge.verifier.widened import evaluate

ORDERED = 0.5  # of the square root of a sum's length: roundings of both signs, growing partial sums
SUPPLY = 1 << 22  # random numbers, of eight bytes
FRESH = SUPPLY // 16  # drawn one result at a time


def evaluate_jittered(program: Callable[[], Any], eps: float, most_terms: float, seed: int) -> Any:
    """evaluate() with the results of all operations off by half an eps at random. most_terms: the number of terms that
    a sum is assumed to add one by one. Raises BenchmarkError NO_FLOAT64.
    """
    return evaluate(program, _noisy(eps, most_terms, seed))


def evaluate_in_order(program: Callable[[], Any]) -> Any:
    """evaluate() with sums of float32 numbers whose terms are added one after the other. Raises BenchmarkError
    NO_FLOAT64.
    """

    def ordered(func: Any, args: Any, kwargs: Any) -> Any:
        error, result = sums.error_in_order(func.overloadpacket.__name__, args, kwargs), func(*args, **kwargs)
        return result if error is None else result.add_(error.view(result.shape))

    return evaluate(program, ordered)


def _noisy(eps: float, most_terms: float, seed: int) -> Callable[[Any, Any, Any], Any]:
    """A function that adds noise to the results of floating-point operations."""
    noise = Noise(seed)

    def noisy(func: Any, args: Any, kwargs: Any) -> Any:
        name = func.overloadpacket.__name__
        size, result = sums.size(name, args, kwargs), func(*args, **kwargs)
        if not name.startswith(("_to_copy", "set_", "resize")):
            given = _tensors(args)
            for value in _results(func, given, result):
                length = min(sums.length(name, value, given), most_terms)
                sizes = size if size is not None and size.shape == value.shape else value
                for part, sized in pieces(value, sizes):
                    _disturb(part, noise.like(part), eps * max(1.0, ORDERED * math.sqrt(length)), sized)
        return result

    return noisy


class Noise:
    """Numbers between -0.5 and 0.5. Small results take their noise from random positions of one precomputed supply,
    which is drawn once the results need more numbers than FRESH.
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._places, self._fresh = seed, random.Random(seed), FRESH
        self._draws: dict[Any, Any] = {}  # generator by device
        self._supplies: dict[Any, Any] = {}

    def like(self, value: Any) -> Any:
        """A tensor of the shape of the value, on its device. It may be part of the supply, so it must not change."""
        import torch

        device, count = value.device, value.numel()
        if device not in self._draws:
            self._draws[device] = torch.Generator(device=device).manual_seed(self._seed)
        self._fresh -= count
        if self._fresh >= 0 or count > SUPPLY // 2:
            return _drawn(value.shape, device, self._draws[device])
        if device not in self._supplies:
            self._supplies[device] = _drawn((SUPPLY,), device, self._draws[device])
        begin = self._places.randrange(SUPPLY - count)
        return self._supplies[device][begin : begin + count].view(value.shape)


def _drawn(shape: Sequence[int], device: Any, draw: Any) -> Any:
    import torch

    return torch.rand(shape, dtype=torch.float64, device=device, generator=draw).sub_(0.5)


def _disturb(value: Any, noise: Any, by: float, size: Any) -> None:
    """Move a result, in place, by a rounding of its size: itself, or the largest partial sum. An infinite result, such
    as that of a mask, stays what it is.
    """
    import torch

    if size.data_ptr() == value.data_ptr():
        value.mul_(torch.add(1.0, noise, alpha=by))
    else:
        value.addcmul_(size.nan_to_num(0.0, 0.0, 0.0), noise, value=by)


def _results(func: Any, given: Sequence[Any], result: Any) -> Iterator[Any]:
    """The results that were computed, and so rounded: neither views of arguments nor unchanged arguments."""
    import torch

    held = set() if func._schema.is_mutable else {tensor.untyped_storage()._cdata for tensor in given}
    for value in _tensors((result,)):
        is_computed = value.dtype in (torch.float64, torch.complex128) and value.untyped_storage()._cdata not in held
        if is_computed and value.numel() and not _is_expanded(value):
            yield value


def _tensors(values: Any) -> list[Any]:
    """The tensors among arguments or results, and in their lists."""
    import torch

    tensors = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _tensors(value)
    return tensors


def _is_expanded(value: Any) -> bool:
    """True if elements share memory, which cannot be changed in place."""
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))
