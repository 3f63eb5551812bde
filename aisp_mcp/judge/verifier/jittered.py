"""Rounding errors of valid orders of operations, found by evaluating the reference with noise of that size.

The baseline's own error may be small by luck, and where numbers cancel it says nothing about other orders. So the
float64 reference is evaluated again with its inputs, and the result of each operation, off by a rounding. A sum is off
by as much as one computed term by term, whose roundings grow with its partial sums and the square root of its length.
Roundings of one sign do not average out; evaluate_in_order() finds what they add up to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aisp_mcp.judge.verifier import sums
from aisp_mcp.judge.verifier.widened import evaluate

ORDERED = 0.5  # of the square root of a sum's length: roundings of both signs, growing partial sums


def evaluate_jittered(program: Callable[[], Any], eps: float, most_terms: float, seed: int) -> Any:
    """evaluate() with the results of all operations off by half an eps at random. most_terms: the number of terms that
    a sum is assumed to add one by one. Raises BenchmarkError NO_FLOAT64.
    """
    return evaluate(lambda: _within(_noise(eps, most_terms, seed), program))


def evaluate_in_order(program: Callable[[], Any]) -> Any:
    """evaluate() with sums of float32 numbers whose terms are added one after the other. Raises BenchmarkError
    NO_FLOAT64.
    """

    def ordered(func: Any, args: Any, kwargs: Any) -> Any:
        error, result = sums.error_in_order(func.overloadpacket.__name__, args, kwargs), func(*args, **kwargs)
        return result if error is None else result.add_(error.view(result.shape))

    return evaluate(lambda: _within(ordered, program))


def _within(change: Callable[[Any, Any, Any], Any], program: Callable[[], Any]) -> Any:
    """Run the program with another function in place of each of its operations, which it gets with their arguments."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def dispatch(mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if smaller := sums.steps(func):
            with mode:
                return smaller(*args, **(kwargs or {}))
        return change(func, args, kwargs or {})

    dispatch.__dict__["__dynamo_disable"] = dispatch  # see widened.py

    class Changed(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        __torch_dispatch__ = dispatch

    with Changed():
        return program()


def _noise(eps: float, most_terms: float, seed: int) -> Callable[[Any, Any, Any], Any]:
    """A function that multiplies results of floating-point operations by noise."""
    import torch

    draws: dict[Any, Any] = {}

    def noise(value: Any) -> Any:
        if value.device not in draws:
            draws[value.device] = torch.Generator(device=value.device).manual_seed(seed)
        kind = torch.float64
        drawn = torch.rand(value.shape, dtype=kind, device=value.device, generator=draws[value.device])
        return drawn.sub_(0.5).mul_(eps)

    def noisy(func: Any, args: Any, kwargs: Any) -> Any:
        name = func.overloadpacket.__name__
        size, result = sums.size(name, args, kwargs), func(*args, **kwargs)
        if not name.startswith(("_to_copy", "set_", "resize")):
            given = _tensors(args)
            for value in _results(func, given, result):
                _disturb(value, noise(value), min(sums.length(name, value, given), most_terms), size)
        return result

    return noisy


def _disturb(value: Any, noise: Any, length: float, size: Any) -> None:
    """Move a result, in place, by a rounding of itself; a sum by those of its partial sums."""
    scale = max(1.0, ORDERED * math.sqrt(length))
    if size is not None and size.shape == value.shape:
        value.add_(noise.mul_(scale).mul_(size))
    else:
        value.mul_(noise.mul_(scale).add_(1.0))


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

    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _is_expanded(value: Any) -> bool:
    """True if elements share memory, which cannot be changed in place."""
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))
