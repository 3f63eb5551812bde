"""Rounding errors of valid orders of operations, found by evaluating the reference with noise of that size.

The baseline's own error may be small by luck, and where numbers cancel it says nothing about other orders. So the
float64 reference is evaluated again with its inputs, and the result of each operation, off by a rounding. A sum is off
by as much as one computed term by term, whose roundings grow with its partial sums and the square root of its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aisp_mcp.judge.verifier.widened import evaluate

BY_NORM = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "convolution")  # sums of products
SCANS = ("cumsum", "cumprod", "logcumsumexp", "_softmax", "_log_softmax")
ORDERED = 0.5  # of the square root of a sum's length: roundings of both signs, growing partial sums


def evaluate_jittered(program: Callable[[], Any], eps: float, most_terms: float, seed: int) -> Any:
    """evaluate() with the results of all operations off by half an eps at random. most_terms: the number of terms that
    a sum is assumed to add one by one. Raises BenchmarkError NO_FLOAT64.
    """

    def noisy() -> Any:
        with _mode(eps, most_terms, seed):
            return program()

    return evaluate(noisy)


def _mode(eps: float, most_terms: float, seed: int) -> Any:
    """A dispatch mode that multiplies results of floating-point operations by noise."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    draws: dict[Any, Any] = {}

    def noise(value: Any) -> Any:
        if value.device not in draws:
            draws[value.device] = torch.Generator(device=value.device).manual_seed(seed)
        kind = torch.float64
        drawn = torch.rand(value.shape, dtype=kind, device=value.device, generator=draws[value.device])
        return drawn.sub_(0.5).mul_(eps)

    def dispatch(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        size = _size_of_sum(name, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        if not (func.is_view or name.startswith(("_to_copy", "set_", "resize"))):
            given = _tensors(args)
            for value in _tensors((result,)):
                if value.dtype in (torch.float64, torch.complex128) and value.numel() and not _is_expanded(value):
                    _disturb(value, noise(value), min(_length(name, value, given), most_terms), size)
        return result

    dispatch.__dict__["__dynamo_disable"] = dispatch  # see widened.py

    class Jittered(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        __torch_dispatch__ = dispatch

    return Jittered()


def _disturb(value: Any, noise: Any, length: float, size: Any) -> None:
    """Move a result, in place, by a rounding of itself; a sum by those of its partial sums."""
    scale = max(1.0, ORDERED * math.sqrt(length))
    if size is not None and size.shape == value.shape:
        value.add_(noise.mul_(scale).mul_(size))
    else:
        value.mul_(noise.mul_(scale).add_(1.0))


def _length(name: str, value: Any, given: Sequence[Any]) -> float:
    """Number of terms summed into one element of the result, as far as shapes tell."""
    if not given:
        return 1.0
    if name in ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"):
        return float(given[-1].shape[-2 if given[-1].ndim > 1 else 0])
    if name == "convolution":
        return float(given[1][0].numel())
    if name.startswith("nll_loss"):
        return float(given[1].numel())
    if name in SCANS and given[0].ndim:
        return float(max(given[0].shape))
    most = max(tensor.numel() for tensor in given)
    return float(max(most / value.numel(), 1.0))


def _size_of_sum(name: str, args: Any, kwargs: Any) -> Any:
    """The size of the partial sums of each element of a result, if known; else None."""
    import torch

    op: Any = getattr(torch.ops.aten, name, None)  # None for operations of other libraries
    tensors = _tensors(args)
    if not tensors or any(one.dtype != torch.float64 for one in tensors):
        return None
    if name in BY_NORM:
        squares = [one.square() if isinstance(one, torch.Tensor) else one for one in args]
        return op(*squares, **kwargs).sqrt()
    if name in ("sum", "mean") and not kwargs:
        dims = args[1] if len(args) > 1 and args[1] is not None else range(tensors[0].ndim)
        keep = bool(args[2]) if len(args) > 2 else False
        return _partial_sums(tensors[0], [*dims], keep, name == "mean")
    if name == "cumsum" and not kwargs:
        dim = args[1]
        return op(tensors[0], dim).abs_().cummax(dim).values
    return None


def _partial_sums(values: Any, dims: Iterable[int], keep: bool, mean: bool) -> Any:
    """The largest magnitude of the partial sums of each sum; for means, divided by the length."""
    dims = sorted(dim % max(values.ndim, 1) for dim in dims) or [*range(values.ndim)]
    if not values.ndim or not values.numel():
        return None
    rest = [dim for dim in range(values.ndim) if dim not in dims]
    rows = values.permute(*rest, *dims).reshape(*(values.shape[dim] for dim in rest), -1)
    most = rows.cumsum(-1).abs_().amax(-1)
    most = most / rows.shape[-1] if mean else most
    if keep:
        most = most.reshape([1 if dim in dims else values.shape[dim] for dim in range(values.ndim)])
    return most


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
